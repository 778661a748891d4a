"""The video model both policy families share: tokenizer, instruction, backbone, anchor and sampler."""
