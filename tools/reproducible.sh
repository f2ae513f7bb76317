#!/usr/bin/env bash
# Build the site from nothing in another folder, and compare it byte for byte.
#
#     tools/reproducible.sh docs/_build/html
#
# Prints every file that differs, with the lines that do, and fails if there is one.
site=$(realpath "$1"); folder=$(mktemp -d); trap 'rm -rf $folder' EXIT
git ls-files -z --others --cached --exclude-standard | xargs -0 cp --parents -t $folder
cd $folder
SHARDBOOK_CACHE= sphinx-build -q -W --keep-going -n -j=auto -d=trees docs html || exit
diff --recursive --unified=0 "$site" html | cut --characters=-160
exit ${PIPESTATUS[0]}
