sleep 1000 &
echo go
while :; do :; done
