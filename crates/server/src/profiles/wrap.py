def _belljar_run():
    # Runs the code that comes on standard input as a script of its own, and tells its last value as JSON.
    import ast, json, sys

    names = sys.modules["__main__"].__dict__
    names.pop("_belljar_run", None)
    job = json.loads(sys.stdin.read())
    code, most = job["code"], 100_000

    def tell(status, dependencies, value=None, error=None):
        told = {"status": status, "dependencies": dependencies[:50]}
        if value is not None: told["return_value"] = value[:most]
        if error is not None: told["error"] = error[:most // 2] + error[-most // 2:] if len(error) > most else error

        class Outcome:
            def _repr_mimebundle_(self, include=None, exclude=None):
                return {"text/plain": "", "application/vnd.belljar.outcome+json": told}

        return Outcome()

    def explain(error):
        import linecache, traceback
        linecache.cache["main.py"] = len(code), None, [line + "\n" for line in code.split("\n")], "main.py"
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != "main.py": trace = trace.tb_next
        return "".join(traceback.TracebackException(type(error), error, trace).format()).rstrip("\n")

    def imported(node, found):
        # Not within try: whoever writes that has another way.
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.Import): found.extend(alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.ImportFrom) and not each.level: found.append(each.module.partition(".")[0])
            elif not isinstance(each, ast.Try): imported(each, found)
        return found

    def is_standard(name):
        known = getattr(sys, "stdlib_module_names", None)
        if known is not None: return name in known
        from importlib.util import find_spec
        spec = find_spec(name)
        return spec is not None and "-packages" not in str(spec.origin)

    def is_there(name):
        from importlib.util import find_spec
        try:
            if find_spec(name.replace("-", "_")): return True
        except (ImportError, ValueError):
            pass
        try:
            from importlib.metadata import distribution
            return bool(distribution(name))
        except Exception:
            return False

    def wanted(tree):
        if "# ///" in code:
            given = listed()
            if given is not None: return given
        found = [name for name in dict.fromkeys(imported(tree, [])) if not is_standard(name)]
        return found, found

    def listed():
        # PEP 723: what the script says, and the names in it.
        import re
        block = re.search(r"(?m)^# /// script\s*$\n((?:^#(?: .*)?$\n)+?)^# ///\s*$", code)
        text = block and re.search(r"(?ms)^dependencies\s*=\s*(\[.*?\])\s*$", re.sub(r"(?m)^# ?", "", block.group(1)))
        if text:
            try:
                given = [each for each in ast.literal_eval(text.group(1)) if isinstance(each, str)]
                return given, [re.match(r"[\w.-]*", each).group() for each in given]
            except (ValueError, SyntaxError):
                pass

    def plainly(value):
        module = type(value).__module__
        if module == "numpy": return value.tolist()
        return repr(value)

    dependencies = []
    try:
        tree = compile(code, "main.py", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        dependencies, modules = wanted(tree)
        missing = [each for each, name in zip(dependencies, modules) if name and not is_there(name)]
        if missing:
            return tell("install-error", dependencies, error="not installed: %s. Packages cannot be installed here: a "
                "sandbox has no network, and only what this host has can be imported." % ", ".join(missing))
        last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        names.update(job["globals"])
        loop = value = None
        for part, mode in (tree, "exec"), (last, "eval"):
            if part is None: continue
            part = compile(part, "main.py", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            value = eval(part, names)
            if part.co_flags & 0x80:
                import asyncio
                loop = loop or asyncio.new_event_loop()
                asyncio.set_event_loop(loop)
                value = loop.run_until_complete(value)
    except SystemExit as error:
        if error.code in (None, 0): return tell("success", dependencies)
        return tell("run-error", dependencies, error=explain(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return tell("run-error", dependencies, error=explain(error))
    if value is None: return tell("success", dependencies)
    if isinstance(value, str): return tell("success", dependencies, value)
    try:
        text = json.dumps(value, indent=2, default=plainly, ensure_ascii=False)
    except Exception:
        text = repr(value)
    show = getattr(__import__("builtins"), "display", None)
    if show and not isinstance(value, (bool, int, float, list, tuple, dict, set, bytes)): show(value)
    return tell("success", dependencies, text)


_belljar_run()
