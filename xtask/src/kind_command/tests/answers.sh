# What the programs answer where all is well. `$command` is the program with its arguments, `$folder` the folder of the test.
case "$command" in
"docker info "*) echo '["name=seccomp,profile=builtin","name=cgroupns"] cgroup v2' ;;
"kind version") echo "kind v0.33.0 go1.27.0 linux/amd64" ;;
"kind get clusters") if [ -e "$folder/clusters" ]; then cat "$folder/clusters"; else echo "No kind clusters found." >&2; fi ;;
"kind create cluster "*) echo ackbeat >>"$folder/clusters" ;;
"kind delete cluster "*) rm "$folder/clusters" ;;
*" get mutatingwebhookconfiguration ackbeat "*) printf LS0tLS1CRUdJTg== ;;
*" get pods --namespace ackbeat-demo "*) echo pod/ackbeat-demo-host-6cc6558496-d9gxp ;;
*" get pods --all-namespaces --output wide") echo "NAMESPACE NAME READY STATUS" ;;
*" get pods --all-namespaces "*) printf 'observability otel-collector-1\nackbeat-demo ackbeat-demo-host-1\n' ;;
*" get events "*) echo "LAST SEEN TYPE REASON" ;;
# The first time no span has come yet.
*" logs deployment/otel-collector "*) if [ -e "$folder/asked" ]; then cat "$folder/collector-log"; fi; : >"$folder/asked" ;;
*" logs "*) echo "of $command" ;;
esac
