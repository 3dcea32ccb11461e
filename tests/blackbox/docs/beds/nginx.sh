# nginx with TLS and without, and a client that asks all the time.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here -keyout key -out crt
{
	echo "daemon off; worker_processes 1; user root; pid /run/nginx.pid; error_log $PWD/error.log; events {}"
	echo "http { access_log off; keepalive_requests 1000000;"
	for name in client_body proxy fastcgi uwsgi scgi; do echo "${name}_temp_path $PWD/$name;"; done
	echo "server { listen 80; listen 443 ssl; ssl_certificate $PWD/crt; ssl_certificate_key $PWD/key; location / { return 200 done; } } }"
} >nginx.conf
nginx -c "$PWD/nginx.conf" -p "$PWD" &
until [ -s /run/nginx.pid ]; do sleep 0.02; done
./browser http://127.0.0.1/ https://127.0.0.1/ &
disown -a
