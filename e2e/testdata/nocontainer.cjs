// Old releases dial host.docker.internal wherever a container's marker exists
// and cannot be told otherwise; on a build machine with the marker they are
// shown none.
const fs = require("fs");
const exists = fs.existsSync;
fs.existsSync = (path) => (path === "/.dockerenv" || path === "/run/.containerenv" ? false : exists(path));
require("module").syncBuiltinESMExports();
