// Builds a Node layer, inside the walls: job as JSON on stdin, npm's words on stderr, what came of it as JSON on stdout.
const fs = require("fs");
const { spawnSync } = require("child_process");

const job = JSON.parse(fs.readFileSync(0, "utf8"));
const say = (phase) => process.stderr.write(`belljar:${phase}\n`);
const place = `${job.build}/place`;
const layer = `${job.build}/layer`;
fs.mkdirSync(place, { recursive: true });
fs.mkdirSync(`${job.build}/tmp`, { recursive: true });
const kept = {};
for (const [name, version] of job.constraints) kept[name] = version;
if (job.below) {
    say("preparing");
    fs.cpSync(job.below, `${place}/node_modules`, { recursive: true, verbatimSymlinks: true });
}
fs.writeFileSync(`${place}/package.json`, JSON.stringify({ private: true, dependencies: kept }));
say("resolving");
// Not what stands in for npm in a sandbox, which asks for a build.
const path = (process.env.PATH ?? "").split(":").filter((one) => !one.startsWith("/belljar/")).join(":");
const run = spawnSync(
    "npm",
    ["install", "--prefix", place, "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=http",
        "--save", "--", ...job.requirements],
    {
        cwd: place,
        stdio: ["ignore", 2, 2],
        env: {
            ...process.env,
            PATH: path,
            TMPDIR: `${job.build}/tmp`,
            NO_COLOR: "1",
            npm_config_cache: `${job.build}/cache`,
            npm_config_fetch_retry_mintimeout: "1000",
            npm_config_fetch_retry_maxtimeout: "5000",
        },
    },
);
if (run.error) {
    process.stderr.write(`npm error cannot start npm: ${run.error.code}\n`);
    process.exit(1);
}
if (run.status !== 0) process.exit(run.status || 1);
say("storing");
const modules = `${place}/node_modules`;
fs.mkdirSync(modules, { recursive: true });
fs.renameSync(modules, layer);
spawnSync("chmod", ["-R", "u+rwX,a+rX", layer]);
let listed = {};
try {
    listed = JSON.parse(fs.readFileSync(`${layer}/.package-lock.json`, "utf8")).packages ?? {};
} catch {}
const packages = [];
for (const [path, about] of Object.entries(listed)) {
    const name = path.replace(/^node_modules\//, "");
    if (!name.includes("node_modules/")) packages.push([name, String(about.version ?? "")]);
}
packages.sort((a, b) => (a[0] < b[0] ? -1 : 1));
for (const name of ["cache", "tmp", "place"]) fs.rmSync(`${job.build}/${name}`, { recursive: true, force: true });
fs.writeFileSync(1, JSON.stringify({ packages, modules: packages.map(([name]) => name) }));
