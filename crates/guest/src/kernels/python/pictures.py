# Pictures: shown within the bounds, with the original beside a smaller copy.
import binascii, io

SIDE_MAX, BYTES_MAX, ORIGINAL_MAX, PIXELS_MAX = 1568, 512 << 10, 6 << 20, 120_000_000


def as_base64(data):
    if is_a(data, str): return exact("".join(data.split()))
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def as_bytes(data):
    return binascii.a2b_base64(data) if is_a(data, str) else bytes(data)


def size_of(data):
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data[:4] == b"GIF8": return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[:2] == b"\xff\xd8":
        # Segments of a JPEG up to the one with the frame.
        at = 2
        while at + 9 < len(data) and data[at] == 255:
            if data[at + 1] in (0xC0, 0xC1, 0xC2):
                return int.from_bytes(data[at + 7:at + 9], "big"), int.from_bytes(data[at + 5:at + 7], "big")
            at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return None


def pillow():
    try:
        image = module("PIL.Image")
        module("PIL.PngImagePlugin"), module("PIL.JpegImagePlugin")
        return image
    except Exception:
        return None


def place(ending):
    # A new file for an original that is too large to be told.
    folder = "/workspace" if posix.access("/workspace", 2) else posix.getcwd()
    for count in range(1, 10000):
        path = "%s/picture-%d.%s" % (folder, count, ending)
        try:
            return path, posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
    raise OSError("no free name for a picture")


def keep(data, mime):
    # The extra that tells of the original.
    if len(data) <= ORIGINAL_MAX: return {"original": {"mime_type": mime, "data": as_base64(data)}}
    path, fd = place(mime.partition("/")[2].replace("jpeg", "jpg"))
    with io.open(fd, "wb") as file: file.write(data)
    return {"original_path": path}


def smaller(image):
    # Bytes of a copy within the bounds, their type and size.
    width, height = image.size
    share = min(1, SIDE_MAX / max(width, height))
    if image.mode not in ("RGB", "RGBA", "L", "P", "1", "LA"):
        image = as_colours(image)
    for _ in range(6):
        size = max(1, round(width * share)), max(1, round(height * share))
        copy = image
        if size != image.size:
            if image.mode in ("P", "1"): copy = image.convert("RGBA" if "transparency" in image.info else "RGB")
            copy = copy.resize(size, 3, reducing_gap=2.0)
        file = io.BytesIO()
        copy.save(file, "PNG", compress_level=6)
        if file.tell() <= BYTES_MAX: return file.getvalue(), "image/png", size
        if copy.mode in ("P", "LA", "RGBA", "1"):
            clear = copy.convert("RGBA")
            copy = pillow().new("RGB", size, "white")
            copy.paste(clear, mask=clear.getchannel("A"))
        for quality in 85, 65:
            file = io.BytesIO()
            copy.save(file, "JPEG", quality=quality)
            if file.tell() <= BYTES_MAX: return file.getvalue(), "image/jpeg", size
        share *= 0.7
    return None


def as_colours(image):
    if image.mode in ("I", "F", "I;16", "I;16B", "I;16L"):
        # Wide grey values: the range that is there, as grey.
        low, high = image.convert("F").getextrema() if image.mode != "F" else image.getextrema()
        scale = 255.0 / (high - low) if high > low else 0.0
        return image.convert("F").point(lambda grey: grey * scale - low * scale).convert("L")
    return image.convert("RGB")


def picture_of(mime, value):
    # The type, the base64 and the extras of what is to be shown of encoded bytes.
    data = as_bytes(value)
    size = size_of(data)
    if len(data) <= BYTES_MAX and (size is None or max(size) <= SIDE_MAX):
        return mime, as_base64(data), {"width": size[0], "height": size[1]} if size else {}
    image = pillow()
    if image and (size is None or size[0] * size[1] <= PIXELS_MAX):
        limit, image.MAX_IMAGE_PIXELS = image.MAX_IMAGE_PIXELS, None
        try:
            source = image.open(io.BytesIO(data))
            if source.size[0] * source.size[1] <= PIXELS_MAX:
                if mime == "image/jpeg": source.draft(None, (SIDE_MAX * 2, SIDE_MAX * 2))
                copy = smaller(source)
                if copy:
                    extras = keep(data, mime)
                    extras["width"], extras["height"] = copy[2]
                    return copy[1], as_base64(copy[0]), extras
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception:
            pass
        finally:
            image.MAX_IMAGE_PIXELS = limit
    told = "%s picture%s, %d bytes: too large to show" % (mime, " of %d x %d" % size if size else "", len(data))
    try:
        path, fd = place(mime.partition("/")[2].replace("jpeg", "jpg"))
        with io.open(fd, "wb") as file: file.write(data)
        told += "; saved as " + path
    except OSError:
        pass
    return "text/plain", told, {}


def bundle_pictures(image):
    # A picture of PIL's.
    width, height = image.size
    text = "<%s %s %d x %d>" % (name_of(type(image)), image.mode, width, height)
    if not width or not height: return {"text/plain": text}, {}
    copy = None
    if max(width, height) <= SIDE_MAX:
        file = io.BytesIO()
        (image if image.mode in ("RGB", "RGBA", "L", "P", "1", "LA") else as_colours(image)).save(file, "PNG")
        copy = file.getvalue(), "image/png", image.size
        if len(copy[0]) > BYTES_MAX: copy = None
    if copy: return {copy[1]: copy[0], "text/plain": text}, {}
    copy = smaller(image)
    if not copy: return {"text/plain": text + ": too large to show"}, {}
    extras = {}
    try:
        # To a file at once: encoded, it may be as large as the memory that is left.
        path, fd = place("png")
        with io.open(fd, "wb") as file:
            (image if image.mode in ("RGB", "RGBA", "L", "P", "1", "LA", "I", "I;16") else as_colours(image)).save(
                file, "PNG", compress_level=1 if width * height > 4_000_000 else 6)
        extras["original_path"] = path
        if posix.stat(path).st_size <= ORIGINAL_MAX:
            with io.open(path, "rb") as file:
                extras = {"original": {"mime_type": "image/png", "data": as_base64(file.read())}}
            posix.unlink(path)
    except OSError:
        pass
    return {copy[1]: copy[0], "text/plain": text}, extras
