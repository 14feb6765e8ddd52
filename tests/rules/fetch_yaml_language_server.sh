#!/bin/sh
# Fetches yaml-language-server (MIT; the editor support's test alone uses it, never shipped) into .cache/yaml-language-server.
set -e
cd "$(dirname "$0")/../.."
[ -f .cache/yaml-language-server/ready ] && exit 0
rm -rf .cache/yaml-language-server
mkdir -p .cache/yaml-language-server
npm install --silent --no-audit --no-fund --ignore-scripts --prefix .cache/yaml-language-server yaml-language-server@1.19.2 >/dev/null
touch .cache/yaml-language-server/ready
