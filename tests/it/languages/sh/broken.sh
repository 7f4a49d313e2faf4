echo first
fi
