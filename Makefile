test:
	cargo nextest run

.PHONY: test
