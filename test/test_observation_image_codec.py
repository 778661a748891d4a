"""Every encoding against references written here, in plain arithmetic."""

import array
import zlib

import cv2
import numpy as np
import pytest

from vag_policy.observation.image_codec import KNOWN_ENCODINGS, CompressedFrame, ImageError, RawFrame, decode

BAYER = {"bayer_rggb8": "rggb", "bayer_bggr8": "bggr", "bayer_gbrg8": "gbrg", "bayer_grbg8": "grbg"}


def yuv_of(rgb):
    """BT.601, limited range, (..., 3) float."""
    matrix = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]])
    return rgb / 255.0 @ matrix.T + np.array([16.0, 128.0, 128.0])


def rgb_of(yuv):
    y, u, v = np.maximum(yuv[..., 0] - 16.0, 0) * 1.16438, yuv[..., 1] - 128.0, yuv[..., 2] - 128.0
    rgb = np.stack([y + 1.59603 * v, y - 0.39176 * u - 0.81297 * v, y + 2.01723 * u], -1)
    return np.clip(np.rint(rgb), 0, 255)


def encode(rgb, encoding, big_endian=False):
    """(H, W, 3) uint8 RGB as a RawFrame. Chroma is that of the left (upper left) pixel."""
    height, width = rgb.shape[:2]
    grey = rgb.mean(-1).round().astype(np.uint8)
    yuv = np.rint(yuv_of(rgb.astype(float))).astype(np.uint8)
    opaque = np.full((height, width, 1), 17, np.uint8)
    if encoding in ("yuv422", "uyvy", "yuyv", "yuv422_yuy2"):
        chroma = yuv[:, ::2, 1:].reshape(height, width)
        pairs = (chroma, yuv[..., 0]) if encoding in ("yuv422", "uyvy") else (yuv[..., 0], chroma)
        rows = np.stack(pairs, -1).reshape(height, -1)
    elif encoding in ("nv12", "nv21"):
        chroma = yuv[::2, ::2, 1:] if encoding == "nv12" else yuv[::2, ::2, :0:-1]
        rows = np.concatenate([yuv[..., 0], chroma.reshape(height // 2, width)])
    elif encoding in BAYER:
        rows = np.empty((height, width), np.uint8)
        for index, letter in enumerate(BAYER[encoding]):
            r, c = divmod(index, 2)
            rows[r::2, c::2] = rgb[r::2, c::2, "rgb".index(letter)]
    elif encoding == "mono16":
        rows = (grey.astype(np.uint16) * 257).astype(">u2" if big_endian else "<u2").view(np.uint8)
    else:
        rows = {
            "rgb8": rgb,
            "bgr8": rgb[..., ::-1],
            "rgba8": np.concatenate([rgb, opaque], -1),
            "bgra8": np.concatenate([rgb[..., ::-1], opaque], -1),
            "mono8": grey,
        }[encoding].reshape(height, -1)
    return RawFrame(encoding, height, width, rows.shape[1], big_endian, rows.tobytes())


def padded(frame, padding, short_last_row=False):
    rows = np.frombuffer(frame.data, np.uint8).reshape(-1, frame.step)
    wide = np.pad(rows, ((0, 0), (0, padding)), constant_values=99).tobytes()
    data = wide[:-padding] if short_last_row else wide
    return RawFrame(frame.encoding, frame.height, frame.width, frame.step + padding, frame.is_bigendian, data)


def flat(colour, height=12, width=16):
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3)).copy()


@pytest.mark.parametrize("encoding", KNOWN_ENCODINGS)
@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 0, 255), (10, 200, 40)], ids=["red", "blue", "green"])
def test_a_colour_stays_that_colour(encoding, colour):
    decoded = decode(encode(flat(colour), encoding))
    assert decoded.shape == (12, 16, 3) and decoded.dtype == np.uint8
    wanted = flat([round(sum(colour) / 3)] * 3) if encoding.startswith("mono") else flat(colour)
    assert np.abs(decoded.astype(int) - wanted).max() <= 2


@pytest.mark.parametrize("encoding", KNOWN_ENCODINGS)
@pytest.mark.parametrize("short", [False, True])
def test_row_padding_is_skipped(encoding, short):
    frame = encode(np.random.default_rng(1).integers(0, 256, (12, 16, 3), np.uint8), encoding)
    assert np.array_equal(decode(padded(frame, 6, short)), decode(frame))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda d: array.array("B", d), np.frombuffer])
def test_any_buffer_will_do(kind):
    rgb = np.random.default_rng(2).integers(0, 256, (4, 6, 3), np.uint8)
    data = np.frombuffer(rgb.tobytes(), np.uint8) if kind is np.frombuffer else kind(rgb.tobytes())
    assert np.array_equal(decode(RawFrame("rgb8", 4, 6, 18, False, data)), rgb)


@pytest.mark.parametrize("encoding", ["uyvy", "yuv422", "yuyv", "yuv422_yuy2"])
def test_yuv_422_arithmetic(encoding):
    raw = np.random.default_rng(3).integers(0, 256, (20, 32, 2), np.uint8)
    luma, chroma = (1, 0) if encoding in ("uyvy", "yuv422") else (0, 1)
    yuv = np.empty((20, 32, 3))
    yuv[..., 0] = raw[..., luma]
    yuv[..., 1] = np.repeat(raw[:, ::2, chroma], 2, axis=1)
    yuv[..., 2] = np.repeat(raw[:, 1::2, chroma], 2, axis=1)
    decoded = decode(RawFrame(encoding, 20, 32, 64, False, raw.tobytes()))
    assert np.abs(decoded - rgb_of(yuv)).max() <= 1


@pytest.mark.parametrize("encoding", ["nv12", "nv21"])
def test_nv12_arithmetic(encoding):
    raw = np.random.default_rng(4).integers(0, 256, (30, 32), np.uint8)
    chroma = raw[20:].reshape(10, 16, 2)[..., :: 1 if encoding == "nv12" else -1]
    yuv = np.dstack([raw[:20], chroma.repeat(2, axis=0).repeat(2, axis=1)]).astype(float)
    decoded = decode(RawFrame(encoding, 20, 32, 32, False, raw.tobytes()))
    assert np.abs(decoded - rgb_of(yuv)).max() <= 1


@pytest.mark.parametrize("encoding", BAYER)
def test_bayer_interpolates_bilinearly(encoding):
    raw = np.random.default_rng(5).integers(0, 256, (14, 18), np.uint8)
    wanted = np.zeros((14, 18, 3))
    for channel, letter in enumerate("rgb"):
        mask = np.zeros((14, 18))
        for index, own in enumerate(BAYER[encoding]):
            mask[index // 2 :: 2, index % 2 :: 2] = own == letter
        near = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]] if letter != "g" else [[0, 1, 0], [1, 4, 1], [0, 1, 0]])
        total, weight = np.zeros((14, 18)), np.zeros((14, 18))
        for dr in (-1, 0, 1):
            for dc in (-1, 0, 1):
                total += near[dr + 1, dc + 1] * np.roll(raw * mask, (dr, dc), (0, 1))
                weight += near[dr + 1, dc + 1] * np.roll(mask, (dr, dc), (0, 1))
        own = raw * mask
        wanted[..., channel] = np.where(mask > 0, own, total / weight)
    decoded = decode(RawFrame(encoding, 14, 18, 18, False, raw.tobytes()))
    assert np.abs(decoded - wanted)[2:-2, 2:-2].max() <= 1


@pytest.mark.parametrize("big_endian", [False, True])
def test_mono16_in_both_byte_orders(big_endian):
    values = np.array([[0, 257, 0x0102, 0x8000, 65280, 65535]])
    data = values.astype(">u2" if big_endian else "<u2").tobytes()
    decoded = decode(RawFrame("mono16", 1, 6, 12, big_endian, data))
    assert decoded[0].tolist() == [[v] * 3 for v in (0, 1, 1, 128, 254, 255)]


def test_the_resize_sees_full_size_pixels_and_its_result_is_rgb():
    rgb = np.random.default_rng(6).integers(0, 256, (8, 8, 3), np.uint8)
    seen = []

    def halve(pixels):
        seen.append(pixels.shape[:2])
        return np.ascontiguousarray(pixels[::2, ::2])

    assert np.array_equal(decode(encode(rgb, "bgr8"), halve), rgb[::2, ::2])
    assert seen == [(8, 8)]


@pytest.mark.parametrize("extension", [".jpg", ".png"])
@pytest.mark.parametrize("label", ["jpeg", "png", "rgb8; jpeg compressed bgr8", "bgr8; png compressed", "", "h264"])
def test_compressed_by_its_bytes_whatever_the_label(extension, label):
    data = cv2.imencode(extension, flat((0, 0, 255)))[1].tobytes()  # OpenCV writes BGR: this is red
    for frame in (CompressedFrame(label, data), RawFrame("rgb8", 480, 640, 1920, False, memoryview(data))):
        assert np.abs(decode(frame).astype(int) - flat((255, 0, 0))).max() <= 2


@pytest.mark.parametrize("encoding", ["jpeg", "mjpeg"])
def test_an_image_message_that_carries_a_jpeg(encoding):
    data = cv2.imencode(".jpg", flat((0, 0, 255)))[1].tobytes()
    decoded = decode(RawFrame(encoding, 12, 16, 0, False, data))
    assert np.abs(decoded.astype(int) - flat((255, 0, 0))).max() <= 2


def test_grey_jpeg_alpha_png_and_bytes_after_the_end():
    grey = cv2.imencode(".jpg", np.full((12, 16), 90, np.uint8))[1].tobytes()
    assert np.abs(decode(CompressedFrame("jpeg", grey)).astype(int) - 90).max() <= 1
    assert decode(CompressedFrame("jpeg", grey + bytes(700))).shape == (12, 16, 3)  # MJPEG cameras pad with zeros
    alpha = cv2.imencode(".png", np.dstack([flat((0, 0, 255)), np.full((12, 16), 3, np.uint8)]))[1].tobytes()
    assert np.array_equal(decode(CompressedFrame("png", alpha)), flat((255, 0, 0)))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (RawFrame("rgb16", 2, 2, 12, False, bytes(24)), ["rgb16", *KNOWN_ENCODINGS]),
        (RawFrame("", 2, 2, 6, False, bytes(12)), ["unknown encoding ''", *KNOWN_ENCODINGS]),
        (RawFrame("16UC1", 2, 2, 4, False, bytes(8)), ["16UC1", "depth", "colour topic", "rgb8"]),
        (RawFrame("32FC1", 2, 2, 8, False, bytes(16)), ["32FC1", "depth"]),
        (RawFrame("rgb8", 0, 4, 12, False, b""), ["rgb8 4x0", "no pixels"]),
        (RawFrame("nv12", 4, 0, 0, False, b""), ["nv12 0x4", "no pixels"]),
        (RawFrame("rgb8", 2, 4, 11, False, bytes(24)), ["step is 11", "needs 12"]),
        (RawFrame("rgb8", 2, 4, 12, False, bytes(23)), ["needs 24 bytes", "23", "truncated"]),
        (RawFrame("nv12", 4, 4, 4, False, bytes(23)), ["needs 24 bytes", "truncated"]),
        (RawFrame("yuyv", 2, 3, 6, False, bytes(12)), ["yuyv 3x2", "even width"]),
        (RawFrame("nv12", 3, 4, 4, False, bytes(18)), ["even width and height"]),
        (RawFrame("bayer_rggb8", 2, 2, 2, False, bytes(4)), ["bayer_rggb8 2x2", "too small"]),
        (CompressedFrame("jpeg", b""), ["neither JPEG nor PNG"]),
        (CompressedFrame("h264", b"\0\0\0\1gibberish"), ["h264", "neither JPEG nor PNG", "jpeg, png"]),
        (CompressedFrame("16UC1; compressedDepth png", bytes(40)), ["depth, not colour"]),
    ],
)
def test_refused_with_a_reason(frame, words):
    with pytest.raises(ImageError) as error:
        decode(frame)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_depth_png_is_refused():
    data = cv2.imencode(".png", np.full((4, 4), 1234, np.uint16))[1].tobytes()
    with pytest.raises(ImageError, match="16-bit grey PNG: depth"):
        decode(CompressedFrame("png", data))


@pytest.mark.parametrize("extension", [".jpg", ".png"])
def test_truncated_files_are_refused(extension):
    data = cv2.imencode(extension, np.random.default_rng(7).integers(0, 256, (32, 32, 3), np.uint8))[1].tobytes()
    for length in (3, 8, 40, len(data) // 2, len(data) - 9):
        with pytest.raises(ImageError, match="truncated|neither"):
            decode(CompressedFrame("x", data[:length]))


def test_a_damaged_file_is_refused():
    with pytest.raises(ImageError, match="damaged jpeg"):
        decode(CompressedFrame("jpeg", b"\xff\xd8\xff\xe0" + bytes(30) + b"\xff\xda" + bytes(30) + b"\xff\xd9"))


@pytest.mark.parametrize(
    "encoding", ["rgb8", "bgr8", "rgba8", "bgra8", "mono8", "mono16", "yuv422", "yuv422_yuy2", *BAYER]
)
def test_like_cv_bridge(encoding):
    cv_bridge = pytest.importorskip("cv_bridge", reason="apt's cv_bridge is not here")
    image_type = pytest.importorskip("sensor_msgs.msg").Image
    frame = encode(np.random.default_rng(8).integers(0, 256, (12, 16, 3), np.uint8), encoding)
    message = image_type(encoding=encoding, height=12, width=16, step=frame.step, data=array.array("B", frame.data))
    theirs = cv_bridge.CvBridge().imgmsg_to_cv2(message, "rgb8")
    assert np.abs(decode(frame).astype(int) - theirs)[2:-2, 2:-2].max() <= 1


def test_a_png_that_promises_more_pixels_than_can_be_is_an_error():
    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    size = (100_000).to_bytes(4, "big")
    header = chunk(b"IHDR", size + size + b"\x08\x02\x00\x00\x00")
    png = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\x00")) + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="damaged png"):
        decode(CompressedFrame("png", png))
