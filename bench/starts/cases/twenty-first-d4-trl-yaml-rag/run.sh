trl dpo --config dpo.yaml 2>&1 | tee train.log
