while IFS= read -r line; do
  echo "out $line"
done
echo "err é" >&2
exit 3
