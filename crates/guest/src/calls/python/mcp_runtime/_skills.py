# Programs that were kept, by their names.
from . import _errors
from ._wire import ask


def asked(question):
    return ask({"skills": question})


class Skills:
    """Programs that were kept: tools.skills.list(), tools.skills.run("name", a=1) or tools.skills.name(a=1),
    tools.skills.save("name", code, description, tools=["server.tool"]), tools.skills.remove("name")."""

    def save(self, name, code, description="", tools=(), language="python"):
        """Keeps a program. Its function `main`, if it has one, is called with the arguments, and its value is the skill's."""
        if isinstance(tools, str): tools = [tools]
        wanted = [getattr(each, "__qualname__", each) for each in tools]
        kept = {"name": name, "description": description, "language": language, "code": code, "tools": wanted}
        value, error = asked({"save": kept})
        if error is None: return value.get("saved")
        raise error

    def list(self):
        """All of them, as dicts; `stale` says why one cannot be run any more."""
        value, error = asked({"list": {}})
        if error is None: return value.get("skills") or []
        raise error

    def remove(self, name):
        value, error = asked({"remove": {"name": name}})
        if error is None: return value.get("removed")
        raise error

    def run(*given, **arguments):
        """Runs one: run("name", a=1)."""
        if len(given) != 2: raise TypeError('run takes the name of a skill, and arguments by name: run("name", a=1)')
        name = given[1]
        value, error = asked({"get": {"name": name}})
        if error is not None: raise error
        skill = value.get("skill") or {}
        if skill.get("language") != "python":
            raise _errors.ToolError("the skill %s is written in %s: run it in a shell, with `tools skills run %s`"
                % (name, skill.get("language"), name))
        place = "/skills/%s/main.py" % name
        space = {"__name__": "skill_%s" % name, "__file__": place, "__builtins__": __builtins__}
        exec(compile(skill.get("code") or "", place, "exec", 0, True), space)
        main = space.get("main")
        if callable(main): return main(**arguments)
        if arguments: raise TypeError("the skill %s has no function main that takes arguments" % name)

    def __getattr__(self, name):
        if name[:2] == "__" or name[:1] == name[-1:] == "_": raise AttributeError(name)

        def skill(**arguments):
            return self.run(name, **arguments)

        skill.__name__ = skill.__qualname__ = name
        return skill

    def __dir__(self):
        return sorted(["save", "run", "list", "remove", *[each["name"] for each in self.list()]])

    def __repr__(self):
        return "<skills: %s>" % ", ".join([each["name"] for each in self.list()])
