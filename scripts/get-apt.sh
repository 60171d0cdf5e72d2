#!/bin/sh
# Sees to it that programs are here which only some tests need: get-apt.sh PROGRAM=PACKAGE ...
# As root on a Debian-like system, installs the packages of those that are missing (without starting services).
# Elsewhere says in one line which tests will skip, and goes on.
# Exit codes: 0 they are here, or cannot be installed here; 3 the installation failed.
set -eu

packages=
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || packages="$packages ${pair#*=}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "get-apt: not here:$packages; tests that need them will skip (install them for all tests)" >&2
    exit 0
fi

policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then # while this exists, packages install without starting services
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    made=1
fi
trap '[ -z "$made" ] || rm -f "$policy"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # one word per package is meant
apt-get install -y -q --no-install-recommends $packages >&2 ||
    { apt-get update -q >&2 && apt-get install -y -q --no-install-recommends $packages >&2; } ||
    { echo "get-apt: apt-get install$packages failed; run it by hand and read its message" >&2; exit 3; }
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || { echo "get-apt: ${pair#*=} is installed, but there is no ${pair%%=*}" >&2; exit 3; }
done
