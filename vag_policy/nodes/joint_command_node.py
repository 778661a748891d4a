"""joint_command: the only node that moves the arms. Chunks in, safe joint commands out, at a fixed rate."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory
from vag_interfaces.msg import ActionChunk, JointCommandStatus

from vag_policy.execution.admission import Refusal
from vag_policy.execution.limits import Vector
from vag_policy.execution.motion import SECOND_NS
from vag_policy.execution.report import Pace, Report, ReportWriter
from vag_policy.milestones import ARMED, HEARD
from vag_policy.nodes import common
from vag_policy.nodes.arm_outputs import ArmOutputs
from vag_policy.nodes.bounded import subscribe_bounded
from vag_policy.nodes.common import LATCHED, LATEST, SENSOR, Diagnostics, main_of, publisher, steady_timer, subscribe
from vag_policy.nodes.joint_command_parameters import PARAMETERS, make_arbiter, make_output_config, make_rig
from vag_policy.nodes.messages import ns_from_stamp, plan_from_msg
from vag_policy.nodes.parameters import ParameterError, declare
from vag_policy.nodes.repeats import Repeats
from vag_policy.nodes.scheduling import ask_for_priority, ask_for_short_slices

# Not only the latest: a button that is let go at once has been pressed, and two arms may share a teleop topic.
EVERY = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
ANY_BUTTON = QoSProfile(depth=20, reliability=ReliabilityPolicy.BEST_EFFORT)
STATUS_PERIOD_NS = SECOND_NS // 5
ACKNOWLEDGE_NS = SECOND_NS // 10
QUIET_NS = 10 * SECOND_NS
"""A fault that was not seen for so long is news again."""
MAX_STATES_BYTES, MAX_TELEOP_BYTES, MAX_CHUNK_BYTES = 128 * 1024, 128 * 1024, 2 * 1024**2
_LEVELS = {"ok": common.OK, "warn": common.WARN, "error": common.ERROR, "stale": common.STALE}


class JointCommand(Node):
    """Wires the arbiter to topics, services and a steady timer."""

    def __init__(self, **options: Any) -> None:
        super().__init__("joint_command", **options)
        values = declare(self, PARAMETERS)
        try:
            self.rig = make_rig(values)
            self.arbiter = make_arbiter(self.rig, values)
        except ValueError as error:
            raise ParameterError(str(error)) from error
        self._auto_arm: bool = values["arm_on_start"]
        self._period_ns = int(SECOND_NS / values["rate"])
        self._due_ns = time.monotonic_ns()
        self._ready: Vector | None = None  # the command to send at due_ns, in the drivers' units
        self._pace = Pace(self._period_ns)
        self._reports = ReportWriter(self.arbiter, time.monotonic_ns())
        self._status = JointCommandStatus(joint_names=list(self.rig.names))
        self._said: tuple[Any, ...] = ()
        self._said_ns = 0
        self._warned: dict[str, tuple[str, int]] = {}
        self._silences = Repeats()  # a computer that is too slow for its drivers misses them over and over
        self._heard = False
        arms = {arm: self.rig.places(arm) for arm in self.rig.arms}
        self._outputs = ArmOutputs(self, arms, self.rig.names_at_driver, make_output_config(values))
        self._status_publisher = publisher(self, JointCommandStatus, "joint_command/status", LATCHED)
        self._listen()
        self._diagnostics = Diagnostics(self, "arms", self._checks())
        self._timer = steady_timer(self, self._period_ns / SECOND_NS, self.tick)
        refused = ask_for_priority(values["nice"], values["realtime_priority"])
        if refused:
            hint = "doc/real-rig.md says how to permit it"
            self.get_logger().info(f"running without the priority asked for ({refused}); {hint}")
        # What exists now lives as long as the node: the collector need not walk it between two commands.
        gc.collect()
        gc.freeze()
        self.get_logger().info("waiting for joint_states")

    def _listen(self) -> None:
        for kind, topic, callback, qos, limit, refuse in (
            (JointState, "joint_states", self._on_joints, SENSOR, MAX_STATES_BYTES, self._refuse_states),
            (ActionChunk, "action_chunk", self._on_chunk, LATEST, MAX_CHUNK_BYTES, self._refuse_chunk),
            (JointTrajectory, "teleop/joint_command", self._on_teleop, EVERY, MAX_TELEOP_BYTES, self._refuse_teleop),
        ):
            subscribe_bounded(self, kind, topic, callback, qos, limit, refuse)
        # Reliable where the button is, so that a press that is lost comes again; but one that is not must work too.
        subscribe(self, Bool, "emergency_stop", self._on_emergency_stop, ANY_BUTTON)
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)
        self.create_subscription(Bool, "emergency_stop", self._on_emergency_stop, EVERY, event_callbacks=quiet)
        arbiter = self.arbiter
        operations = {
            "arm": (arbiter.arm, "armed"),
            "disarm": (arbiter.disarm, "disarmed"),
            "emergency_stop": (lambda now_ns: arbiter.emergency_stop("called by service", now_ns), "stopped"),
            "reset_stop": (arbiter.reset_stop, "reset; the arms are disarmed"),
            "home": (arbiter.home, "on the way home"),
        }
        for name, (operation, done) in operations.items():
            self.create_service(Trigger, f"~/{name}", self._service(name, operation, done))
        threshold = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True)
        self._jumps = self.get_clock().create_jump_callback(threshold, post_callback=self._on_clock_jump)

    def _service(self, name: str, operation: Callable[[int], str], done: str) -> Callable[..., Trigger.Response]:
        def answer(_request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            self._auto_arm = False  # from the first call on, the operator decides
            refused = operation(time.monotonic_ns())
            response.success, response.message = not refused, refused or done
            self.get_logger().info(f"{name}: {response.message}")
            return response

        return answer

    # What comes in

    def _on_joints(self, message: JointState) -> None:
        stamp_ns = ns_from_stamp(message.header.stamp)
        fault = self.arbiter.joints(message.name, message.position, stamp_ns, time.monotonic_ns())
        if not self.arbiter.sending:
            self._ready = None  # an arm was found elsewhere: not even the command that waits is sent
        if not self._heard and self.arbiter.feedback.complete:
            self._heard = True
            self.get_logger().info(HEARD)
        self._warn_once("joint_states", fault)

    def _refuse_states(self, reason: str) -> None:
        self.arbiter.tally.refuse_states(reason)
        self._warn_once("joint_states", reason, "unreadable")

    def _on_chunk(self, message: ActionChunk) -> None:
        now_ns = time.monotonic_ns()
        if message.horizon == 0:
            self.arbiter.flush("the policy was stopped", now_ns)
            return
        self._report(self._take(message, now_ns))

    def _refuse_chunk(self, reason: str) -> None:
        self._report(self._refuse(Refusal("malformed", reason, broken=True), time.monotonic_ns()))

    def _report(self, refusal: Refusal | None) -> None:
        cause, text = (refusal.cause, f"chunk refused ({refusal.cause}): {refusal.text}") if refusal else ("", "")
        self._warn_once("action_chunk", text, cause, error=refusal is not None and refusal.broken)

    def _take(self, message: ActionChunk, now_ns: int) -> Refusal | None:
        clock_ns = self.get_clock().now().nanoseconds
        if clock_ns == 0:
            return self._refuse(Refusal("no_clock", "there is no /clock yet"), now_ns)
        try:
            plan = plan_from_msg(message)
        except ValueError as error:
            return self._refuse(Refusal("malformed", str(error), broken=True), now_ns)
        return self.arbiter.chunk(plan, clock_ns - plan.observation_stamp_ns, now_ns)

    def _refuse(self, refusal: Refusal, now_ns: int) -> Refusal:
        self.arbiter.refuse(refusal, now_ns)
        return refusal

    def _on_teleop(self, message: JointTrajectory) -> None:
        positions = message.points[-1].positions if message.points else ()
        fault = self.arbiter.teleop(message.joint_names, positions, time.monotonic_ns())
        self._warn_once("teleop", f"teleop target refused: {fault}" if fault else "")

    def _refuse_teleop(self, reason: str) -> None:
        self.arbiter.tally.refused["teleop"] += 1
        self._warn_once("teleop", f"teleop target refused: {reason}", "unreadable")

    def _on_emergency_stop(self, message: Bool) -> None:
        if message.data:
            self._auto_arm = False
            self.arbiter.emergency_stop("called by topic", time.monotonic_ns())

    def _on_clock_jump(self, _jump: Any) -> None:
        self.arbiter.time_went_back("the clock", time.monotonic_ns())

    # What goes out

    def tick(self) -> None:
        """Send the command that is due, then make the one for the next tick, and the status when it is due.

        What is sent waits ready: the work of making it, and whoever interrupts that, does not show in its time.
        """
        now_ns = time.monotonic_ns()
        if self._ready is not None and now_ns - self._due_ns < self._period_ns:
            self._outputs.publish(self._ready)
        self._pace.tick(now_ns)
        self._due_ns = self._next_due(now_ns)
        if self._auto_arm and not self.arbiter.arm(now_ns):
            self._auto_arm = False
            self.get_logger().info(ARMED)
        command = self.arbiter.tick(self._due_ns)
        self._ready = None if command is None else self.rig.to_driver(command)
        self._say(now_ns)

    def _next_due(self, now_ns: int) -> int:
        """The next tick's time: a period after the last, or after now where a stall has shifted the ticks."""
        due_ns = self._due_ns + self._period_ns
        return due_ns if 0 < due_ns - now_ns < 1.5 * self._period_ns else now_ns + self._period_ns

    def _say(self, now_ns: int) -> None:
        arbiter = self.arbiter
        state = (arbiter.mode, arbiter.reason, arbiter.armed, arbiter.stop_reason, arbiter.policy.episode)
        if state == self._said and now_ns - self._said_ns < STATUS_PERIOD_NS:
            return
        calm = arbiter.silent and self._reports.starting(now_ns)
        if arbiter.fault and not calm and state[:2] != self._said[:2]:
            text = f"{arbiter.mode}: {arbiter.reason}"
            text = self._silences.filtered(text, now_ns) if arbiter.silent else text
            if text:
                self.get_logger().error(text)
        self._said, self._said_ns = state, now_ns
        self._status_publisher.publish(self._filled_status(now_ns))

    def _filled_status(self, now_ns: int) -> JointCommandStatus:
        arbiter, tally, status = self.arbiter, self.arbiter.tally, self._status
        status.header.stamp = self.get_clock().now().to_msg()
        status.mode, status.reason, status.armed = arbiter.mode, arbiter.reason, arbiter.armed
        status.emergency_stop = bool(arbiter.stop_reason)
        status.episode, status.queue_depth = arbiter.policy.episode, arbiter.policy.depth(now_ns)
        status.commands, status.chunks = tally.commands, tally.chunks
        status.rejected, status.misses = sum(tally.refused.values()), tally.misses
        status.clamps, status.limit_violations = tally.clamped, tally.violations
        status.command = [] if arbiter.command is None else arbiter.command.tolist()
        status.measured = arbiter.feedback.position.tolist()
        return status

    def _checks(self) -> dict[str, common.Check]:
        def check(report: Callable[[int], Report]) -> common.Check:
            def run() -> tuple[bytes, str, Mapping[str, Any]]:
                level, text, numbers = report(time.monotonic_ns())
                return _LEVELS[level], text, numbers

            return run

        reports = self._reports
        return {
            "execution": check(reports.execution),
            "joint_states": check(reports.feedback),
            "chunks": check(reports.chunks),
            "limits": check(reports.limits),
            "pace": check(lambda _: self._pace.report()),
        }

    def _warn_once(self, topic: str, text: str, key: str = "", error: bool = False) -> None:
        """Log a fault when it is another than the last on its topic or long past, not with every message."""
        key, now_ns = key or text, time.monotonic_ns()
        last, seen_ns = self._warned.get(topic, ("", 0))
        if not key:
            return
        self._warned[topic] = (key, now_ns)
        if key == last and now_ns - seen_ns < QUIET_NS:
            return
        if error:
            self.get_logger().error(text)
        else:  # on a line of its own: rclpy allows a line one severity
            self.get_logger().warning(text)

    def stop(self) -> None:
        """Brake within the limits and send the hold before anything is torn down: a driver keeps what came last."""
        self._timer.cancel()
        sending = self.arbiter.sending
        self.arbiter.disarm(time.monotonic_ns(), "shutting down")
        try:
            give_up_ns = time.monotonic_ns() + SECOND_NS
            while self.arbiter.moving and time.monotonic_ns() < give_up_ns:
                time.sleep(self._period_ns / SECOND_NS)
                self.tick()
            self.tick()
        finally:
            if sending and self.arbiter.command is not None:
                self._outputs.publish(self.rig.to_driver(self.arbiter.command))
            for sender in (*self._outputs.publishers, self._status_publisher):
                sender.wait_for_all_acked(Duration(nanoseconds=ACKNOWLEDGE_NS))


def main() -> None:
    """Run the node."""
    ask_for_short_slices()  # before anything starts a thread
    main_of(JointCommand)()


if __name__ == "__main__":
    main()
