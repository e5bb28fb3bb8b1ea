# SPDX-License-Identifier: Apache-2.0
from snug_finetune import main

main()
