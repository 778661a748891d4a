"""A lifecycle node that survives bad requests and says why a transition failed."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNodeMixin, TransitionCallbackReturn
from rclpy.node import Node

from vag_policy.nodes.side_executor import SideThreadGroup


class TransitionAbandonedError(Exception):
    """A transition that the node's end has cut short: no fault."""


class ManagedNode(LifecycleNodeMixin, Node):
    """``rclpy.lifecycle.LifecycleNode`` with its sharp edges taken off.

    - A transition that the current state does not have, such as activating twice, raises through rclpy's executor and
      ends the process. Here it is refused and logged, as is one that comes while another is under way.
    - An exception in a transition callback is swallowed by rclpy: wrap its body with ``attempt``.
    - The state can be asked for while a slow transition runs: with ``SideThreadExecutor`` it has a thread of its own.
    """

    def __init__(self, name: str, **options: Any) -> None:
        Node.__init__(self, name, **options)
        self.transition_group = SideThreadGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self.transition_group)
        self.transition_lock = threading.Lock()
        """Held while a transition runs."""
        self.failure = ""
        """Why the last attempted transition failed; empty where it did not."""
        service = self._service_change_state
        service.callback = self._refusing(service.callback)

    @property
    def state_label(self) -> str:
        """The lifecycle state: unconfigured, inactive, active, finalized, or a transition's."""
        return self._state_machine.current_state[1]

    def attempt(self, what: str, body: Callable[[], None]) -> TransitionCallbackReturn:
        """Run the body of a transition callback; an exception is logged and kept in ``failure``, and fails it."""
        self.failure = ""
        try:
            body()
        except TransitionAbandonedError as reason:
            self.get_logger().info(f"did not {what}: {reason}")
            return TransitionCallbackReturn.FAILURE
        except Exception as error:
            self.failure = f"cannot {what}: {error or type(error).__name__}"
            self.get_logger().error(self.failure)
            self.get_logger().debug(traceback.format_exc())
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _refusing(self, change_state: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(request: ChangeState.Request, response: ChangeState.Response) -> ChangeState.Response:
            wanted = request.transition.label or request.transition.id
            response.success = False
            if not self.transition_lock.acquire(blocking=False):
                self.get_logger().warning(f"transition {wanted} refused: another one is under way")
                return response
            try:
                return change_state(request, response)
            except RuntimeError as error:
                self.get_logger().warning(f"transition {wanted} refused in state '{self.state_label}': {error}")
                return response
            finally:
                self.transition_lock.release()

        return guarded
