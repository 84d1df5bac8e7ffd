import os
import sys

os.execv("/usr/local/bin/vllm", ["sglang.launch_server", *sys.argv[1:]])
