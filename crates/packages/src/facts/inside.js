// What an interpreter is and has, as JSON on stdout.
const version = process.versions.node;
process.stdout.write(JSON.stringify({
    made_for: ["node", process.versions.modules, process.platform, process.arch].join("|"),
    version,
    machine: process.arch,
    modules: require("module").builtinModules.filter((name) => !name.startsWith("_")),
    uv: null,
    pip: false,
}));
