import os
import sys

os.execv("/usr/local/bin/vllm", ["vllm.entrypoints.openai.api_server", *sys.argv[1:]])
