#!/bin/sh
# Makes the secrets that compose.yaml reads, where they are missing: random passwords, readable by their owner alone.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
[ -e secrets/postgres_password ] || head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > secrets/postgres_password
[ -e secrets/prefect_auth ] || printf 'admin:%s' "$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')" > secrets/prefect_auth
[ -e secrets/notify_urls ] || printf '# one address a line, such as mailtos://user:password@example.org\n' > secrets/notify_urls
# The processes in the containers have another user id; the folder above them stays closed to others.
chmod 644 secrets/*
