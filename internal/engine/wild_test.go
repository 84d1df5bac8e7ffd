package engine

import "testing"

// TestCommandLinesInTheWild has the ways public manifests start their servers;
// the first words of each row name the project and the file it comes from.
func TestCommandLinesInTheWild(t *testing.T) {
	run(t, []row{
		{
			"aibrix samples/quickstart/model.yaml: list form with --host and --port",
			Container{Command: argv("vllm serve --host 0.0.0.0 --port 8000 --model deepseek-ai/x --served-model-name x")},
			vllm8000,
		},
		{
			"aibrix samples/heterogeneous: an API key does not guard /metrics",
			Container{Command: argv("vllm serve --host 0.0.0.0 --port 8000 --model /models/x --api-key sk-abc --enforce-eager")},
			vllm8000,
		},
		{
			"aibrix samples/distributed/fleet.yaml: Ray first, vLLM stays; 8080 is Ray's own exporter",
			Container{
				Command: []string{"/bin/bash", "-lc", "--"},
				Args:    []string{"ulimit -n 65536; ray start --head --metrics-export-port=8080 --dashboard-host=0.0.0.0; vllm serve x --tensor-parallel-size 2 --distributed-executor-backend ray"},
				Ports:   []Port{{"metrics", 8080}, {"service", 8000}},
			},
			vllm8000,
		},
		{
			"aibrix samples/deepseek-r1, leader: KubeRay's own command is unknown, vLLM follows it",
			Container{Command: []string{"/bin/bash", "-lc", "--"}, Args: []string{"ulimit -n 65536; echo head; $KUBERAY_GEN_RAY_START_CMD & sleep 30; vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8"}},
			vllm8000,
		},
		{
			"aibrix samples/deepseek-r1, worker: Ray alone waits for work",
			Container{Image: "vllm/vllm-openai:v0.8.4", Command: []string{"/bin/bash", "-lc", "--"}, Args: []string{"ulimit -n 65536; $KUBERAY_GEN_RAY_START_CMD"}},
			noEngine,
		},
		{
			"aibrix samples/disaggregation/vllm/1p1d.yaml: lines joined by backslashes, a role in JSON",
			Container{Command: []string{"sh", "-c"}, Args: []string{"python3 -c \"import sys\" && \\\nvllm serve /models/x \\\n  --host \"0.0.0.0\" \\\n  --port \"8000\" \\\n  --uvicorn-log-level warning \\\n  --kv-transfer-config '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_consumer\"}'\n"}},
			vllm8000 + " Decode",
		},
		{
			"aibrix samples/disaggregation/sglang/tp-1p1d.yaml: a rank known only in the Pod may be the leader's; metrics are off",
			Container{Command: []string{"sh", "-c"}, Args: []string{"python3 -m sglang.launch_server --model-path /models/x --host 0.0.0.0 --port 30000 --disaggregation-mode prefill --nnodes 2 --node-rank $POD_GROUP_INDEX --dist-init-addr $ADDR:5000"}},
			sglang30000 + " Prefill MetricsDisabled",
		},
		{
			"aibrix samples/disaggregation/sglang, router: no engine",
			Container{Image: "lmsysorg/sglang:v0.5.2", Command: []string{"sh", "-c"}, Args: []string{"python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://p:30000 --port 30000"}},
			noEngine,
		},
		{
			"aibrix samples/quickstart/tensorrt: trtllm-serve is not in the table, a heredoc is no command",
			Container{Command: []string{"/bin/bash", "-c"}, Args: []string{"cat > cfg.yaml <<EOF\nvllm serve x\nEOF\ntrtllm-serve serve x --extra_llm_api_options cfg.yaml"}},
			noEngine,
		},
		{
			"production-stack helm/templates/deployment-vllm-multi.yaml: a path before vllm",
			Container{Command: argv("/opt/venv/bin/vllm serve meta-llama/x --host 0.0.0.0 --port 8000 --no-enable-prefix-caching"), Env: env("PROMETHEUS_MULTIPROC_DIR", "/tmp")},
			vllm8000,
		},
		{
			"production-stack helm/templates/ray-cluster.yaml: vLLM comes from a lifecycle hook, the command is Ray's",
			Container{Image: "lmcache/vllm-openai:latest", Command: sh("ray start --head --block --dashboard-host 0.0.0.0")},
			noEngine,
		},
		{
			"lws docs/examples/vllm/GPU/lws.yaml, leader: a script first; flags with underscores",
			Container{Command: []string{"sh", "-c", "bash /vllm-workspace/examples/online_serving/multi-node-serving.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE); python3 -m vllm.entrypoints.openai.api_server --port 8080 --model x --pipeline_parallel_size 2"}},
			vllm8080,
		},
		{
			"lws docs/examples/vllm/GPU/lws.yaml, worker: the script starts Ray alone",
			Container{Image: "vllm/vllm-openai:latest", Command: []string{"sh", "-c", "bash /vllm-workspace/examples/online_serving/multi-node-serving.sh worker --ray_address=$(LWS_LEADER_ADDRESS)"}},
			noEngine,
		},
		{
			"lws docs/examples/sglang/lws.yaml: both roles have one command",
			Container{Command: append(argv("python3 -m sglang.launch_server --model-path /models/x --tp 2 --dist-init-addr $(LWS_LEADER_ADDRESS):20000 --nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX) --trust-remote-code --host 0.0.0.0 --port"), "40000")},
			"sglang by command http://127.0.0.1:40000/metrics MetricsDisabled",
		},
		{
			"lws docs/examples/tensorrt-llm/lws.yaml: Triton behind a Python program of its own",
			Container{Image: "nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3", Command: sh("./install_model.sh; python3 ./server.py leader --triton_model_repo_dir=/x")},
			noEngine,
		},
		{
			"lws docs/examples/llamacpp/k8s/lws.yaml: llama.cpp is not in the table",
			Container{Image: "llamacpp-leader", Command: argv("/llamacpp-leader -- --n-gpu-layers 0 --port 8080")},
			noEngine,
		},
		{
			"vllm docs/deployment/frameworks/lws.md, leader: ranks from LWS",
			Container{Command: []string{"sh", "-c", "vllm serve x --tensor-parallel-size 8 --nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX) --master-addr $(LWS_LEADER_ADDRESS) --port 8080"}},
			vllm8080,
		},
		{
			"vllm docs/deployment/frameworks/lws.md, worker: headless",
			Container{Command: []string{"sh", "-c", "vllm serve x --nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX) --headless"}},
			vllm8000 + " ServesNoMetrics",
		},
		{
			"vllm docs/deployment/k8s.md: no --port",
			Container{Command: []string{"/bin/sh", "-c"}, Args: []string{"vllm serve mistralai/Mistral-7B-Instruct-v0.3 --trust-remote-code --enable-chunked-prefill --max_num_batched_tokens 1024"}, Ports: []Port{{"", 8000}}},
			vllm8000,
		},
		{
			"vllm examples/deployment/chart-helm: list form",
			Container{Command: argv("vllm serve /data/ --served-model-name opt-125m --dtype bfloat16 --host 0.0.0.0 --port 8000")},
			vllm8000,
		},
		{
			"kthena examples/model-serving/data-parallel-deployment.yaml: each rank serves its own metrics",
			Container{Command: argv("python3 -m vllm.entrypoints.openai.api_server --model x --data-parallel-size 2 --data-parallel-rank 1 --data-parallel-address $(ENTRY_ADDRESS)")},
			vllm8000,
		},
		{
			"kthena examples/models/deepseek-v4-flash: a script from a ConfigMap; image and declared port are all there is",
			Container{Image: "quay.io/ascend/vllm-ascend:v0.13", Command: []string{"/bin/bash", "-c"}, Args: []string{"cd /workspace && ./prefill.sh"}, Ports: []Port{{"", 7100}}},
			"vllm by image http://127.0.0.1:7100/metrics",
		},
		{
			"kthena examples/model-serving/vllm-pd-multinode.yaml: a producer",
			Container{Command: []string{"sh", "-c", "bash /vllm-workspace/multi-node-serving.sh leader --ray_cluster_size=2; python3 -m vllm.entrypoints.openai.api_server --port 8000 --model x --kv-transfer-config '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_producer\"}'"}},
			vllm8000 + " Prefill",
		},
		{
			"kthena examples/model-serving/sglang-pd-disaggregation.yaml: command and args",
			Container{Command: argv("python3 -m sglang.launch_server"), Args: argv("--model-path x --disaggregation-mode decode --enable-metrics --host 0.0.0.0 --port 30000")},
			sglang30000 + " Decode",
		},
		{
			"ome config/runtimes/srt: SGLang on 8080",
			Container{Command: argv("python3 -m sglang.launch_server"), Args: argv("--host 0.0.0.0 --port 8080 --model-path $(MODEL_PATH) --tp-size 8 --enable-metrics")},
			"sglang by command http://127.0.0.1:8080/metrics",
		},
		{
			"ome config/runtimes/srt, router: folded YAML",
			Container{Command: []string{"sh", "-c", "python3 -m sglang_router.launch_router --host 0.0.0.0 --port 8080 --service-discovery\n"}},
			noEngine,
		},
		{
			"sglang docs lws_pd_deploy.mdx, worker: its declared port is not what it listens on",
			Container{Command: argv("python3 -m sglang.launch_server --model-path /models --disaggregation-mode prefill --node-rank $(LWS_WORKER_INDEX)"), Ports: []Port{{"", 30001}}},
			sglang30000 + " Prefill MetricsDisabled",
		},
		{
			"lmdeploy k8s/deployment.yaml: LMDeploy is not in the table",
			Container{Image: "openmmlab/lmdeploy:latest", Command: []string{"/bin/sh", "-c"}, Args: []string{"lmdeploy serve api_server x --server-port 23333"}},
			noEngine,
		},
	})
}
