package bedrock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
)

// Kind is the upstream's kind.
const Kind = "bedrock"

// Credentials are what a request is signed with, or the key that it holds
// instead.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string // of temporary credentials
	APIKey          string // a Bedrock API key; sent as a bearer token
}

// Options are one region, or one server that stands in for it.
type Options struct {
	// Region is where the models run, such as us-east-1. A signature names it.
	Region string
	Credentials
	// Server is what package anthropic asks for. BaseURL is that of Region's
	// public endpoint if empty.
	Server anthropic.Options
	// Now is the clock of signatures; nil is time.Now.
	Now func() time.Time
}

var region = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-\d+$`)

// New makes the upstream. Nothing is asked of the server: Bedrock has no
// request that is free and open to all who may call a model.
func New(ctx context.Context, o Options) (upstream.Upstream, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("upstream bedrock: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := o.Server
	if s.BaseURL == "" {
		s.BaseURL = "https://bedrock-runtime." + o.Region + ".amazonaws.com"
	}
	s.Kind, s.APIKey, s.NoProbe = Kind, "", true
	s.Secrets = []string{o.SecretAccessKey, o.SessionToken, o.APIKey}
	s.Wrap = func(inner http.RoundTripper) http.RoundTripper { return newCarrier(o, inner) }
	return anthropic.New(ctx, s)
}

func (o *Options) check() error {
	signs := o.AccessKeyID != "" || o.SecretAccessKey != "" || o.SessionToken != ""
	switch {
	case o.APIKey != "" && signs:
		return errors.New("both api_key and access_key_id are set; a request holds one or is signed with the other")
	case o.APIKey == "" && !signs:
		return errors.New("no credentials: set access_key_id and secret_access_key, or api_key to a Bedrock API key; none are taken from the environment unless the file names them, as ${env:AWS_ACCESS_KEY_ID}")
	case signs && strings.TrimSpace(o.AccessKeyID) == "":
		return errors.New("access_key_id is missing or empty")
	case signs && strings.TrimSpace(o.SecretAccessKey) == "":
		return errors.New("secret_access_key is missing or empty")
	case !signs && strings.TrimSpace(o.APIKey) == "":
		return errors.New("api_key is empty")
	case o.Region == "" && (signs || o.Server.BaseURL == ""):
		return errors.New("region is missing, such as us-east-1")
	case o.Region != "" && !region.MatchString(o.Region):
		return fmt.Errorf("region is %q, want for example us-east-1", o.Region)
	}
	return nil
}

func (c *Credentials) aws() aws.Credentials {
	return aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}
}
