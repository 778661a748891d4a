"""policy: observations in, action chunks and traces out; a lifecycle node around one inference thread."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from sensor_msgs.msg import Image
from std_msgs.msg import String
from std_srvs.srv import Trigger
from vag_interfaces.msg import ActionChunk, JointCommandStatus, PolicyTrace
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.milestones import ACTIVE, LOADING
from vag_policy.nodes.bounded import subscribe_bounded
from vag_policy.nodes.common import LATCHED, LATEST, Diagnostics, publisher, run, steady_timer, subscribe
from vag_policy.nodes.episode_server import EpisodeServer
from vag_policy.nodes.managed_node import ManagedNode, TransitionAbandonedError
from vag_policy.nodes.messages import MAX_TEXT, image_to_msg, ns_from_stamp, plan_to_msg, trace_to_msg
from vag_policy.nodes.parameters import declare
from vag_policy.nodes.policy_diagnostics import PolicyChecks
from vag_policy.nodes.policy_loader import load_policy, warm_up, weights
from vag_policy.nodes.policy_parameters import PARAMETERS, guidance_changes, session_config
from vag_policy.nodes.policy_worker import PLANNER_THREAD, Outputs, Planner
from vag_policy.nodes.scheduling import ask_for_priority
from vag_policy.nodes.side_executor import SideThreadExecutor
from vag_policy.policy import Plan, Policy, PolicyError
from vag_policy.serving.episode_watch import EpisodeWatch, Repetition
from vag_policy.serving.session import PlanningSession
from vag_policy.serving.worker import WorkerStoppedError

LoadPolicy = Callable[[Mapping[str, Any], Callable[[str], Any]], Policy]

_STOP_S = 1.0  # a replan cannot be interrupted: how long a Ctrl-C waits for it
_CLEANUP_S = 60.0
_MAX_INSTRUCTION_BYTES = 64 * 1024
_LATENT_STRIDE = 4  # video frames of a latent frame after the first


class PolicyNode(ManagedNode):
    """Plans while it is active and has an instruction.

    - configure loads the policy and makes one plan to warm up; activate lets plans out; deactivate ends the episode and
      lets no further plan out from that moment on. The arms hold when the chunk they are at has run out; for anything
      quicker there is joint_command's ``~/emergency_stop``.
    - Inference has one thread of its own and always takes the newest observation; the executor never waits for it.
    - An instruction, from the topic or from the action, starts an episode; only an active node takes one. Sending the
      arms home ends it: the next instruction starts another, even where it is the same, but not where it is merely
      repeated by its sender.

    Args:
        load: makes the policy from the parameter values, on the inference thread.
    """

    def __init__(self, load: LoadPolicy = load_policy, **options: Any) -> None:
        super().__init__("policy", **options)
        self._values = declare(self, PARAMETERS, changed=self._on_parameters)
        self._load = load
        # Episode numbers come from the time of day, so that a policy that starts again does not reuse one.
        self._session = PlanningSession(session_config(self._values), first_episode=time.time_ns() // 1_000_000)
        self._planner: Planner | None = None
        self._episodes: EpisodeServer | None = None
        self._observations: Any = None
        self._chunks = publisher(self, ActionChunk, "action_chunk", LATEST, lifecycle=True)
        self._traces = publisher(self, PolicyTrace, "policy_trace", LATEST, lifecycle=True)
        self._imagined = publisher(self, Image, "imagined/image", LATEST, lifecycle=True)
        refuse = self._refuse_instruction
        subscribe_bounded(self, String, "instruction", self._on_instruction, LATEST, _MAX_INSTRUCTION_BYTES, refuse)
        self._watch, self._repetition, self._sent_home = EpisodeWatch(), Repetition(), False
        subscribe(self, JointCommandStatus, "joint_command/status", self._on_arms, LATCHED)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self._jumps = self.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1)), post_callback=self._on_clock_jump
        )
        self._checks = PolicyChecks(self, self._session, self._values["checkpoint"])
        self._diagnostics = Diagnostics(self, "policy", self._checks.table)
        if self._values["autostart"]:
            self._start = steady_timer(self, 0.001, self._autostart, callback_group=self.transition_group)

    # Lifecycle

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the policy and take observations in; they are not planned on before activation."""
        result = self.attempt("configure", self._configure)
        if result != TransitionCallbackReturn.SUCCESS:
            self._release(_STOP_S)
        return result

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let plans out."""
        self.get_logger().info(ACTIVE)
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the episode. A plan that is being made will not go out."""
        self._halt("the policy was deactivated")
        self.get_logger().info("inactive: no plan goes out any more")
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of the policy and its memory."""
        return self.attempt("clean up", partial(self._release, _CLEANUP_S))

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the episode, and let go of the policy."""
        super().on_deactivate(state)
        return self.attempt("shut down", partial(self._release, _CLEANUP_S))

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of everything, to be configured again."""
        super().on_deactivate(state)
        return self.attempt("recover", partial(self._release, _CLEANUP_S))

    def stop(self) -> None:
        """The process is about to end: nothing goes out any more, and the thread is given a moment to finish."""
        self._halt("the policy is shutting down")
        for _ in range(10 if self._episodes is not None and self._episodes.running else 0):
            self.executor.spin_once(timeout_sec=0.05)  # so that the client of a goal still hears how it ended
        self._release(_STOP_S)

    def _autostart(self) -> None:
        self._start.cancel()
        with self.transition_lock:
            if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                self.trigger_activate()

    def _configure(self) -> None:
        outputs = Outputs(
            plan=self._publish_plan,
            replanned=self._on_replanned,
            failed=self._on_failed,
            imagined=self._publish_imagined,
            wants_imagined=lambda: self._imagined.get_subscription_count() > 0,
        )
        planner = Planner(self._session, self._now_ns, outputs, self._values["imagined_every"])
        self._planner = self._checks.planner = planner
        try:
            planner.load(self._make_policy)
        except WorkerStoppedError:
            raise TransitionAbandonedError("the node was stopped while the policy loaded") from None
        self._episodes = self._episodes or EpisodeServer(self, self._session, self._why_no_goal)
        self._observations = subscribe(self, ObservationMsg, "observation", self._on_observation, LATEST)

    def _make_policy(self) -> Policy:
        ask_for_priority(self._values["nice"])  # of this thread, the inference thread, and torch's that it starts
        self.get_logger().info(LOADING + weights(self._values))
        start = time.monotonic()
        policy = self._load(self._values, self.get_logger().warning)
        loaded_s, warm_ms = time.monotonic() - start, 0.0
        if self._values["warm_up"]:
            try:
                warm_ms = warm_up(policy, self._values["warm_up"])
            except PolicyError as error:
                self.get_logger().warning(f"no warm-up, so the first replan will be slow: {error}")
        self.get_logger().info(f"policy loaded in {loaded_s:.1f} s; first replan {warm_ms:.0f} ms")
        return policy

    def _halt(self, reason: str) -> None:
        self._session.end()
        if self._episodes is not None:
            self._episodes.abort(reason)
        if self._planner is not None:
            self._planner.clear()

    def _release(self, timeout_s: float) -> None:
        self._halt("the policy is shutting down")
        planner, self._planner, self._checks.planner = self._planner, None, None
        observations, self._observations = self._observations, None
        if observations is not None:
            self.destroy_subscription(observations)
        # one that is still loading is not waited for: nothing is lost
        if planner is not None and not planner.stop(timeout_s if planner.loaded else 0.0) and planner.loaded:
            self.get_logger().warning(f"a replan is still running after {timeout_s:.0f} s: it is not waited for")

    # In

    def _now_ns(self) -> int:
        return self.get_clock().now().nanoseconds

    def _on_observation(self, message: ObservationMsg) -> None:
        stamp_ns = ns_from_stamp(message.header.stamp)
        self._checks.observed(stamp_ns)
        if self._session.arrived(stamp_ns, self._now_ns()):
            self.get_logger().warning("time went back: starting a new episode")
        if self._planner is not None and self.state_label == "active":
            self._planner.put(message)

    def _on_arms(self, message: JointCommandStatus) -> None:
        episode = self._session.episode
        ended = self._watch.ended(message.mode, message.episode, message.chunks, episode, time.monotonic_ns())
        if ended and self._session.instruction:
            self._halt("the arms were sent home")
            self._sent_home = True
            self.get_logger().info(f"episode {episode} ended: the arms were sent home; idle until the next instruction")

    def _on_instruction(self, message: String) -> None:
        text = message.data.strip()
        repeated = self._repetition.seen(text, time.monotonic_ns())
        if len(text) > MAX_TEXT:
            self._refuse_instruction(f"{len(text)} characters, allowed: at most {MAX_TEXT}")
            return
        reason = self._why_not_acting()
        if self._episodes is not None and self._episodes.running:
            reason = "a run_episode goal owns the instruction"
        self._sent_home |= self._watch.home_wins(time.monotonic_ns())  # even where no episode was running
        if text and reason:
            self.get_logger().warning(f"instruction '{text[:100]}' ignored: {reason}")
        elif not reason and text != self._session.instruction and not (self._sent_home and repeated):
            self._follow(text)

    def _refuse_instruction(self, reason: str) -> None:
        self._session.refuse("instruction", reason)
        self.get_logger().warning(f"instruction refused: {reason}", throttle_duration_sec=10.0)

    def _follow(self, text: str) -> None:
        self._sent_home = False
        if not text:
            self._session.end()
            self.get_logger().info("no instruction: idle")
            return
        episode = self._session.begin(text)
        self.get_logger().info(f"episode {episode}: '{text[:100]}'")

    def _on_reset(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = True
        response.message = f"episode {self._session.episode}" if self._session.restart() else "idle: nothing to reset"
        return response

    def _on_clock_jump(self, _jump: Any) -> None:
        self._session.clock_jumped_back()

    def _on_parameters(self, fresh: Mapping[str, Any]) -> None:
        if self._planner is not None:
            self._planner.set_guidance(guidance_changes(fresh))

    def _why_not_acting(self) -> str:
        if self._watch.home_wins(time.monotonic_ns()):
            return "the arms were sent home at the same moment"
        return "" if self.state_label == "active" else f"the policy is {self.state_label}, not active"

    def _why_no_goal(self) -> str:
        if self.transition_lock.acquire(timeout=2.0):  # one that comes while activation is under way waits for it
            self.transition_lock.release()
        return self._why_not_acting()

    # Out, on the inference thread

    def _publish_plan(self, plan: Plan, frame_id: str) -> None:
        self._chunks.publish(plan_to_msg(plan, frame_id))
        if plan.trace is not None:
            self._traces.publish(trace_to_msg(plan, frame_id))

    def _on_replanned(self, plan: Plan, replan_ms: float) -> None:
        if self._episodes is not None:
            self._episodes.replanned(plan, replan_ms)

    def _on_failed(self, error: Exception, episode: int) -> None:
        self.get_logger().error(f"replan failed: {type(error).__name__}: {error}", throttle_duration_sec=10.0)
        if self._episodes is not None:
            self._episodes.failed(error, episode)

    def _publish_imagined(self, frames: NDArray[np.uint8], plan: Plan, frame_id: str) -> None:
        """The last video frame of every latent frame, top to bottom: now, then the imagined future."""
        strip = np.concatenate(frames[::_LATENT_STRIDE])
        self._imagined.publish(image_to_msg(strip, plan.observation_stamp_ns, frame_id))


def run_process(make_node: Callable[[], PolicyNode]) -> NoReturn:
    """Run the node and end the process, even where a replan is still running.

    Python could not end with a thread inside torch: it would wait for it, or abort when it comes back.
    """
    code = run(make_node, make_executor=SideThreadExecutor)
    if not any(thread.name == PLANNER_THREAD for thread in threading.enumerate()):
        sys.exit(code)
    gc.collect()  # the DDS participant goes with the last reference to it, and takes its shared memory along
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Console script."""
    run_process(PolicyNode)


if __name__ == "__main__":
    main()
