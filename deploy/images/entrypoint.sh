#!/bin/sh
# Puts secrets, which are files, where Prefect looks for them, then runs the command. Nothing of them is printed.
set -eu

secrets="${SECRETS_FOLDER:-/run/secrets}"

if [ -r "$secrets/prefect_auth" ]; then
    PREFECT_SERVER_API_AUTH_STRING="$(cat "$secrets/prefect_auth")"
    PREFECT_API_AUTH_STRING="$PREFECT_SERVER_API_AUTH_STRING"
    export PREFECT_SERVER_API_AUTH_STRING PREFECT_API_AUTH_STRING
fi
if [ -r "$secrets/postgres_password" ]; then
    export PREFECT_API_DATABASE_CONNECTION_URL="postgresql+asyncpg://prefect:$(cat "$secrets/postgres_password")@${POSTGRES_HOST:-postgres}:5432/prefect"
fi
if [ -r "$secrets/notify_urls" ]; then
    MINDPRETRAIN_NOTIFY_URLS="$(grep -v '^#' "$secrets/notify_urls" | tr '\n' ' ')"
    export MINDPRETRAIN_NOTIFY_URLS
fi
exec "$@"
