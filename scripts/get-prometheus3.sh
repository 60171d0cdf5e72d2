#!/bin/sh
# Fetches Prometheus 3 and its promtool from Debian sid into a folder, for tests beside the Prometheus of this system:
#     get-prometheus3.sh [FOLDER]        (default .venv/prometheus3; the programs are FOLDER/usr/bin/{prometheus,promtool})
# Any user with apt can: nothing is installed, apt has a sources list, package lists and a cache of its own in the folder,
# and verifies the archive's signature with the keys of this system. PROMETHEUS3_MIRROR overrides the archive's address.
# Exit codes: 0 they are here; 3 they cannot be had, with one line that says why.
set -eu

cd "$(dirname "$0")/.."
folder=${1:-.venv/prometheus3}
mirror=${PROMETHEUS3_MIRROR:-http://deb.debian.org/debian}

impossible() {
    echo "get-prometheus3: $1" >&2
    exit 3
}

is3() { # the program runs, and is a Prometheus 3
    "$1" --version 2>/dev/null | grep -q 'version 3\.'
}

if is3 "$folder/usr/bin/prometheus" && is3 "$folder/usr/bin/promtool"; then exit 0; fi
if [ -e "$folder" ] && [ -n "$(ls -A "$folder" 2>/dev/null || echo no folder)" ]; then
    impossible "$folder is there and holds no Prometheus 3; remove it, or name another folder"
fi
for program in apt-get dpkg dpkg-deb; do
    command -v "$program" >/dev/null ||
        impossible "there is no $program here; unpack a release of Prometheus 3 and set PROMETHEUS and PROMTOOL to its programs"
done
keys=
for path in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
    [ ! -r "$path" ] || keys=$path
done
[ -n "$keys" ] || impossible "the keys of Debian's archive are missing; install the package debian-archive-keyring"
mkdir -p "$(dirname "$folder")" || impossible "$(dirname "$folder") cannot be made; name another folder"
parent=$(cd "$(dirname "$folder")" && pwd)
work=$(mktemp -d "$parent/.prometheus3-XXXXXX") || impossible "$parent cannot be written to; name another folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 3' INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/new"
echo "deb [signed-by=$keys] $mirror sid main" >"$work/sources.list"

# apt's download sandbox needs a folder that the user _apt can enter; here the caller's own rights do
apt() {
    LC_ALL=C apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Languages=none -o APT::Get::List-Cleanup=0 "$@" >"$work/log" 2>&1
}
said() { # the first complaint of apt
    grep -m1 '^[EW]: ' "$work/log" || echo "apt-get says nothing"
}
apt update --error-on=any || impossible "Debian sid cannot be read from $mirror: $(said)"
(cd "$work" && apt download prometheus promtool) || impossible "the packages cannot be fetched from $mirror: $(said)"
for package in "$work"/prometheus_*.deb "$work"/promtool_*.deb; do
    dpkg-deb -x "$package" "$work/new" || impossible "$(basename "$package") cannot be unpacked in $parent; is the disk full?"
done
for program in prometheus promtool; do
    is3 "$work/new/usr/bin/$program" ||
        impossible "the $program of Debian sid does not run here as a Prometheus 3 ($(dpkg --print-architecture)); set PROMETHEUS and PROMTOOL to another"
done
[ ! -d "$folder" ] || rmdir "$folder" # empty: seen to above
mv "$work/new" "$folder"
echo "Prometheus 3 is in $folder/usr/bin: $("$folder/usr/bin/prometheus" --version | sed -n 's/^prometheus, version \([^ ]*\).*/\1/p')"
