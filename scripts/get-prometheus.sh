#!/bin/sh
# Sees to it that promtool and prometheus are here: environment variables PROMTOOL / PROMETHEUS, then PATH.
# Otherwise, as root on a Debian-like system, installs the package `prometheus` (without starting its service).
# Exit codes: 0 they are here; 3 they are not, with one line that says what to do.
set -eu

missing() {
    echo "get-prometheus: $1; install Prometheus (apt-get install prometheus, or a release tarball) and put promtool and prometheus on PATH, or set PROMTOOL and PROMETHEUS to their paths" >&2
    exit 3
}

here() {
    [ -n "$(command -v "${PROMTOOL:-promtool}")" ] && [ -n "$(command -v "${PROMETHEUS:-prometheus}")" ]
}

here && exit 0
# a variable that points nowhere is a mistake to tell, not a reason to install
for pair in "PROMTOOL=${PROMTOOL:-}" "PROMETHEUS=${PROMETHEUS:-}"; do
    path=${pair#*=}
    [ -z "$path" ] || command -v "$path" >/dev/null || missing "${pair} is not an executable file"
done
[ "$(id -u)" = 0 ] || missing "not found, and only root can install packages"
command -v apt-get >/dev/null || missing "not found, and there is no apt-get"
sh "$(dirname "$0")/get-apt.sh" prometheus=prometheus promtool=prometheus || missing "apt-get install prometheus failed"
here || missing "installed, but still not found"
