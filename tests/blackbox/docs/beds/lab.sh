# Tables of one's own: one to route by, and a small one.
seq 1 254 | sed 's/.*/10.1.&.0\/24/' | gzip >ROUTES.txt.gz
cp "$REPOSITORY/docs/tries/routes.txt" .
