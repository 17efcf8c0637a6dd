// Old releases connect to host.docker.internal if a container's marker exists,
// and no setting prevents that. This hides the marker of a build machine.
const fs = require("fs");
const exists = fs.existsSync;
fs.existsSync = (path) => (path === "/.dockerenv" || path === "/run/.containerenv" ? false : exists(path));
require("module").syncBuiltinESMExports();
