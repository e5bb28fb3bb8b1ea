# SPDX-License-Identifier: Apache-2.0
"""Small pictures of every kind in tests/data/pictures/, and what Pillow makes of them: expected.bin (rows of
RGB) and expected.json (name, size, offset; and checksums of resized pictures, whose pixels the test makes
itself). Interlaced and 16-bit PNG, which Pillow does not write, come from the few lines below.

What is transparent is laid on white, as transformers 5 does before it resizes.

Needs pillow, numpy, transformers. Usage: python pictures.py
"""
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps, PngImagePlugin
from transformers.image_transforms import convert_to_rgb

FOLDER = Path(__file__).resolve().parents[1] / "data" / "pictures"
WIDTH, HEIGHT = 23, 17


def scene(channels, width=WIDTH, height=HEIGHT, bits=8):
    """A ramp with some noise: every value range is met, and codecs have something to lose."""
    random = np.random.RandomState(channels * 1000 + bits)
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (9 + c) + y * (13 - 3 * c)) % 256 for c in range(channels)]
    noise = random.randint(-20, 21, (height, width, channels))
    values = np.clip(np.stack(planes, -1) + noise, 0, 255)
    if bits == 16:
        values = values * 257 + random.randint(-128, 128, values.shape)
        return np.clip(values, 0, 65535).astype(np.uint16)
    return values.astype(np.uint8)


def image(mode):
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    return Image.fromarray(scene(channels).squeeze(), mode)


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(values, colour_type, bits, interlaced=False, extra=b""):
    """A PNG of (height, width, channels) samples, unfiltered."""
    height, width = values.shape[:2]

    def rows(part):
        if part.size == 0:
            return b""
        out = b""
        for row in part.reshape(part.shape[0], -1):
            if bits == 16:
                packed = row.astype(">u2").tobytes()
            else:
                text = "".join(format(int(v), f"0{bits}b") for v in row)
                text += "0" * (-len(text) % 8)
                packed = bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
            out += b"\0" + packed
        return out

    parts = [values[y0::dy, x0::dx] for x0, y0, dx, dy in PASSES] if interlaced else [values]
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, int(interlaced))
    body = zlib.compress(b"".join(rows(part) for part in parts))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def saved(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def exif(orientation, endian="<"):
    head = b"II*\0" if endian == "<" else b"MM\0*"
    entries = [(0x010E, 2, 1, 0), (0x0112, 3, 1, orientation if endian == "<" else orientation << 16)]
    data = head + struct.pack(endian + "IH", 8, len(entries))
    return b"Exif\0\0" + data + b"".join(struct.pack(endian + "HHII", *e) for e in entries) + bytes(4)


XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


def with_xmp(jpeg):
    payload = b"http://ns.adobe.com/xap/1.0/\0" + XMP
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + jpeg[2:]


def jpegs():
    rgb = image("RGB")
    yield "grey.jpg", saved(image("L"), "JPEG", quality=80)
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        yield f"{name}.jpg", saved(rgb, "JPEG", quality=75, subsampling=subsampling)
    yield "progressive.jpg", saved(rgb, "JPEG", progressive=True)
    yield "optimised.jpg", saved(rgb, "JPEG", quality=30, optimize=True, restart_marker_blocks=2)
    yield "rgb.jpg", saved(rgb, "JPEG", keep_rgb=True)
    yield "cmyk.jpg", saved(image("CMYK"), "JPEG", quality=90)
    # The same inks marked as YCCK: another colour transform on the way.
    cmyk = bytearray(saved(image("CMYK"), "JPEG", quality=90))
    adobe = cmyk.find(b"Adobe")
    cmyk[adobe + 11] = 2
    yield "ycck.jpg", bytes(cmyk)
    yield "one.jpg", saved(Image.new("RGB", (1, 1), (200, 30, 60)), "JPEG")
    for orientation in range(1, 9):
        yield f"turned{orientation}.jpg", saved(rgb, "JPEG", exif=exif(orientation, "<>"[orientation % 2]))
    yield "xmp.jpg", with_xmp(saved(rgb, "JPEG"))


def pngs():
    palette = np.array([[i * 16 % 256, 255 - i * 9, i * 5] for i in range(16)], np.uint8)
    plte = chunk(b"PLTE", palette.tobytes())
    grey = scene(1)
    for bits in (1, 2, 4):
        yield f"grey{bits}.png", png(grey >> (8 - bits), 0, bits)
        yield f"palette{bits}.png", png(grey >> (8 - bits), 3, bits, extra=plte[: 12 + 48])
    yield "palette8.png", png(grey % 16, 3, 8, extra=plte)
    yield "palette-short.png", png(grey % 20, 3, 8, extra=plte)
    yield "palette-clear.png", png(grey % 16, 3, 8, extra=plte + chunk(b"tRNS", bytes(range(0, 160, 10))))
    for mode in ("L", "LA", "RGB", "RGBA"):
        yield f"{mode.lower()}.png", saved(image(mode), "PNG")
    rgb = scene(3)
    yield "rgb-clear.png", png(rgb, 2, 8, extra=chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[3, 4]))))
    yield "grey-clear.png", png(grey, 0, 8, extra=chunk(b"tRNS", struct.pack(">H", int(grey[5, 6, 0]))))
    yield "grey1-clear.png", png(grey >> 7, 0, 1, extra=chunk(b"tRNS", struct.pack(">H", 1)))
    for name, colour_type, channels in (("grey", 0, 1), ("rgb", 2, 3), ("la", 4, 2), ("rgba", 6, 4)):
        values = scene(channels, bits=16)
        if name == "grey":
            values[: HEIGHT // 2] //= 256
        yield f"{name}16.png", png(values, colour_type, 16)
    yield "interlaced.png", png(scene(3), 2, 8, interlaced=True)
    yield "interlaced1.png", png(grey >> 7, 0, 1, interlaced=True)
    yield "interlaced16.png", png(scene(4, bits=16), 6, 16, interlaced=True)
    yield "one.png", png(scene(3, 1, 1), 2, 8)
    yield "line.png", png(scene(3, 300, 1), 2, 8)
    yield "gamma.png", png(scene(3), 2, 8, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    frames = [image("RGB"), Image.new("RGB", (WIDTH, HEIGHT), (9, 9, 9))]
    yield "animated.png", saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    yield "turned.png", saved(image("RGB"), "PNG", exif=exif(6))
    notes = PngImagePlugin.PngInfo()
    notes.add_itxt("XML:com.adobe.xmp", XMP.decode())
    yield "xmp.png", saved(image("RGB"), "PNG", pnginfo=notes)
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", "a" * 900, zip=True)
    notes.add_itxt("XML:com.adobe.xmp", XMP.decode(), "en", "XMP", zip=True)
    yield "xmp-compressed.png", saved(image("RGB"), "PNG", pnginfo=notes)


def webps():
    yield "lossy.webp", saved(image("RGB"), "WEBP", quality=60)
    yield "lossless.webp", saved(image("RGB"), "WEBP", lossless=True)
    yield "alpha.webp", saved(image("RGBA"), "WEBP", lossless=True, exact=True)
    yield "lossy-alpha.webp", saved(image("RGBA"), "WEBP", quality=70)
    frames = [image("RGBA"), Image.new("RGBA", (WIDTH, HEIGHT), (9, 9, 9, 255))]
    yield "animated.webp", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    yield "turned.webp", saved(image("RGB"), "WEBP", quality=60, exif=exif(8))


def pixels(width, height):
    """The picture that the test makes: a linear congruence, one byte a channel."""
    count, state, out = width * height * 3, 12345, bytearray()
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 255)
    return Image.frombytes("RGB", (width, height), bytes(out))


# Smaller, larger, the same, extreme shapes.
SIZES = [
    (64, 48, 24, 24), (20, 31, 24, 24), (24, 50, 24, 24), (50, 24, 24, 24), (24, 24, 24, 24),
    (1, 1, 24, 24), (1, 300, 24, 24), (300, 1, 24, 24), (640, 480, 224, 224), (97, 61, 224, 224),
    (1000, 3, 224, 224), (333, 500, 364, 364), (66, 46, 62, 38), (50, 57, 29, 14), (40, 400, 30, 24),
]


def resized():
    """In two steps, since Pillow 13 would turn their order round for tall pictures."""
    for width, height, new_width, new_height in SIZES:
        for resample in (0, 1, 4, 5):  # bilinear and bicubic are torchvision's: pictures_torchvision.py
            narrowed = pixels(width, height).resize((new_width, height), resample)
            out = narrowed.resize((new_width, new_height), resample)
            yield [width, height, new_width, new_height, resample, zlib.crc32(out.tobytes())]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    pictures, binary = [], b""
    for name, data in [*jpegs(), *pngs(), *webps()]:
        (FOLDER / name).write_bytes(data)
        upright = convert_to_rgb(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), return_numpy=False)
        pictures.append({"name": name, "width": upright.width, "height": upright.height, "offset": len(binary)})
        binary += upright.tobytes()
    (FOLDER / "expected.bin").write_bytes(binary)
    lines = [json.dumps(picture) for picture in pictures]
    text = '{"pillow": "%s",\n"pictures": [\n%s],\n"resized": [\n%s]}\n' % (
        PIL.__version__, ",\n".join(lines), ",\n".join(json.dumps(row) for row in resized()))
    (FOLDER / "expected.json").write_text(text)


if __name__ == "__main__":
    main()
