"""Which dataset column is which camera and joint: by name, never by position unless that is asked for.

Datasets in the wild name the same things differently; what a policy calls ``left_joint1`` is ``left_joint1.pos``,
``left_j0`` or ``left_joint_1`` there. A ``NameMap`` says so, and for bimanual YAM data it can be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vag_policy.data.lerobot_format import ACTION, IMAGES, STATE
from vag_policy.robots.yam import ARMS, JOINT_NAMES


class DatasetError(ValueError):
    """A dataset that cannot be used; the message names the file, the frame or the name, and what is expected."""


@dataclass(frozen=True)
class NameMap:
    """From a policy's names to a dataset's.

    Attributes:
        cameras: camera name -> feature; a camera that is not listed is ``observation.images.<name>``.
        state: entry name -> the dataset's name of it; names that are not listed are the same in both.
        action: the same for actions.
        state_feature: the feature that holds the state.
        action_feature: the feature that holds the actions.
        positional: take the vectors' entries in the order they are stored, for datasets that do not name them.
    """

    cameras: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    action: Mapping[str, str] = field(default_factory=dict)
    state_feature: str = STATE
    action_feature: str = ACTION
    positional: bool = False

    def camera(self, name: str) -> str:
        """The feature that holds camera ``name``."""
        return self.cameras.get(name, f"{IMAGES}{name}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NameMap:
        """From a configuration file's section.

        Raises:
            ValueError: an unknown key; the message lists the keys.
        """
        unknown = sorted(set(config) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"no setting '{unknown[0]}' of a name map; allowed: {', '.join(cls.__dataclass_fields__)}")
        return cls(**config)


def entry_names(feature: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of a vector feature's entries; None where the dataset gives none, or not one for each entry."""
    names: Any = feature.get("names")
    if isinstance(names, Mapping):  # older datasets: {"motors": [...]} or {name: index}
        lists = [value for value in names.values() if isinstance(value, list)]
        names = lists[0] if len(lists) == 1 else sorted(names, key=names.__getitem__) if not lists else None
    if not isinstance(names, list) or len(names) != feature["shape"][0]:
        return None
    return tuple(str(name) for name in names)


def order(
    what: str, wanted: Sequence[str], feature: Mapping[str, Any], aliases: Mapping[str, str], positional: bool
) -> list[int]:
    """Where each ``wanted`` entry stands in a vector feature.

    Args:
        what: for messages: the feature.
        wanted: the policy's names.
        feature: from ``info.json``.
        aliases: policy's name -> dataset's name, where they differ.
        positional: see ``NameMap``.

    Raises:
        DatasetError: a name is missing, or the number of entries does not fit; both sides are listed.
    """
    found, size = entry_names(feature), feature["shape"][0]
    if positional:
        if size != len(wanted):
            raise DatasetError(f"{what} has {size} entries, expected {len(wanted)}: {', '.join(wanted)}")
        return list(range(size))
    if found is None:
        raise DatasetError(
            f"{what} does not name its {size} entries; say 'positional' if they are in this order: {', '.join(wanted)}"
        )
    names = [aliases.get(name, name) for name in wanted]
    missing = [name for name in names if name not in found]
    if missing:
        raise DatasetError(f"{what} has no entry '{missing[0]}'; it has: {', '.join(found)}")
    return [found.index(name) for name in names]


def _joint_variants() -> dict[str, dict[str, str]]:
    """Ways in which public bimanual YAM datasets name the 14 joints, by an example of the first."""
    arm_patterns = ("{arm}_joint{n}", "{arm}_joint{n}.pos", "{arm}_joint_{n}", "{arm}_joint_{n}.pos", "{arm}_j{n}")
    variants: dict[str, dict[str, str]] = {}
    for pattern in arm_patterns:
        for first in (1, 0):
            for gripper in ("{arm}_gripper", "{arm}_gripper.pos", None):
                names = [
                    gripper.format(arm=arm) if gripper and n == 6 else pattern.format(arm=arm, n=n + first)
                    for arm in ARMS
                    for n in range(7)
                ]
                variants[f"{names[0]} … {names[6]}"] = dict(zip(JOINT_NAMES, names, strict=True))
    return variants


JOINT_VARIANTS = _joint_variants()
CAMERA_VARIANTS: tuple[dict[str, str], ...] = (
    {"top": "top", "left_wrist": "left_wrist", "right_wrist": "right_wrist"},
    {"top": "top", "left_wrist": "left", "right_wrist": "right"},
    {"top": "top_camera", "left_wrist": "left_camera", "right_wrist": "right_camera"},
    {"top": "cam_high", "left_wrist": "cam_left_wrist", "right_wrist": "cam_right_wrist"},
)


def find_yam_names(features: Mapping[str, Mapping[str, Any]]) -> NameMap:
    """The name map of a bimanual YAM dataset, from the variants that are known.

    Raises:
        DatasetError: cameras or joints are named in no known way; the message lists the dataset's names.
    """
    return NameMap(
        cameras=_find_cameras(features), state=_find_joints(features, STATE), action=_find_joints(features, ACTION)
    )


def _find_cameras(features: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    for variant in CAMERA_VARIANTS:
        cameras = {ours: f"{IMAGES}{theirs}" for ours, theirs in variant.items()}
        if all(name in features for name in cameras.values()):
            return cameras
    pictures = [name for name, feature in features.items() if feature["dtype"] in ("video", "image")]
    known = "; ".join("/".join(variant.values()) for variant in CAMERA_VARIANTS)
    raise DatasetError(
        f"cameras are named in no known way: {', '.join(pictures) or 'none'}; known below '{IMAGES}': {known}. "
        f"A name map can say which is which"
    )


def _find_joints(features: Mapping[str, Mapping[str, Any]], what: str) -> dict[str, str]:
    if what not in features:
        raise DatasetError(f"no feature '{what}'; there are: {', '.join(features)}")
    found = entry_names(features[what])
    for variant in JOINT_VARIANTS.values():
        if found is not None and set(variant.values()) <= set(found):
            return variant
    names = ", ".join(found) if found else "not at all"
    raise DatasetError(
        f"{what} names its {features[what]['shape'][0]} entries in no known way: {names}; known, for example: "
        f"{'; '.join(list(JOINT_VARIANTS)[:3])}. A name map can say which is which"
    )
