# Motley with pinned versions, and the README's command in it:
#
#   docker build --tag motley .
#   docker run --rm --volume "$PWD:/work" motley compare who-to-ask.toml
#
# Not tried by the tests: the image that it begins with comes from the internet.
FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
COPY . /motley
RUN cd /motley && make install
WORKDIR /work
ENV PATH=/motley/.venv/bin:$PATH
ENTRYPOINT ["motley"]
CMD ["--help"]
