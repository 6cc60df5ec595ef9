package openai

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/sdk/chat"
)

func TestImagesKeepTheirURL(t *testing.T) {
	for url, want := range map[string]chat.Part{
		"https://x/y.png":                 {Type: chat.Image, URL: "https://x/y.png"},
		"data:image/png;base64,AAAA":      {Type: chat.Image, MediaType: "image/png", Data: "AAAA"},
		"data:image/svg+xml,%3Csvg%3E":    {Type: chat.Image, URL: "data:image/svg+xml,%3Csvg%3E"},
		"https://x/a;base64,not-data-url": {Type: chat.Image, URL: "https://x/a;base64,not-data-url"},
	} {
		assert.Equal(t, want, Image(url))
		assert.Equal(t, url, ImageURL(want))
	}
}
