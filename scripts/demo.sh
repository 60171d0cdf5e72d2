#!/bin/sh
# Plays one of the bundled recordings of a real server through the pack's rules: demo.sh RECORDING CONFIG [obs replay options]
set -eu
cd "$(dirname "$0")/.."
recording=$1 config=$2
shift 2
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT INT TERM
cat <<EOF
The recording is a real server going through an incident of ten minutes. Its phases are shorter than the
defaults of the rules, so they are built here with short times (tests/data/recordings/$config.obs.yaml):
windows and \`for\` of seconds, the same expressions and thresholds otherwise.

EOF
.venv/bin/obs build --config "tests/data/recordings/$config.obs.yaml" --out "$pack" >/dev/null
.venv/bin/obs replay "tests/data/recordings/$recording.tar.gz" --rules "$pack/alerts/rules/*.yaml" "$@"
cat <<EOF

Next: \`make build\` writes the pack for your servers (alerts/rules, dashboards); obs.yaml configures it.
EOF
