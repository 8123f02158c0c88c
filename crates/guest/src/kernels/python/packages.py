# Packages that have come, or have gone, since they were last looked at.
def renew_packages():
    forget_places()
    try:
        files = posix.listdir(packages)
    except OSError:
        return
    if any([name.endswith(".pth") for name in files]): heed_pth()
    compare_versions(files)


def forget_places():
    # What importlib.invalidate_caches() would do, and more: that loads importlib.metadata first, which takes 20 ms, and
    # goes by times of change, which two layers may have the same.
    for path in list(sys.path_importer_cache):
        if path.startswith(PACKAGES): sys.path_importer_cache.pop(path, None)
    for module in list(sys.modules.values()):
        # A package in several places has found them when it was imported.
        path = getattr(module, "__dict__", {}).get("__path__")
        if type(path).__name__ == "_NamespacePath": path._last_parent_path = None
    metadata = sys.modules.get("importlib.metadata")
    try:
        metadata.FastPath.__new__.cache_clear()
    except AttributeError:
        pass


def heed_pth():
    # As Python does with .pth files at its start: what they add to the path comes before the interpreter's own.
    import site
    before, own = sys.path[:], sys.path.index(packages) + 1
    site.addsitedir(packages)
    added = [path for path in sys.path if path not in before]
    # At once: another thread may be importing.
    if sys.path == before + added: sys.path[:] = before[:own] + added + before[own:]


def compare_versions(files):
    # A module that was loaded stays what it is.
    for name in files:
        name, dash, version = name[:-10].partition("-") if name.endswith(".dist-info") else ("", "", "")
        module = sys.modules.get(name.lower() or None)
        loaded = getattr(module, "__dict__", {}).get("__version__")
        if type(loaded) is str and loaded != version:
            err.write("%s %s is loaded in this kernel already, and stays; %s comes with a new sandbox\n"
                % (name, loaded, version))
