package openai

import (
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Image is the part for an image's URL. A data URL in base64 is split.
func Image(url string) chat.Part {
	head, data, found := strings.Cut(url, ",")
	media, isBase64 := strings.CutSuffix(head, ";base64")
	if media, isData := strings.CutPrefix(media, "data:"); found && isBase64 && isData {
		return chat.Part{Type: chat.Image, MediaType: media, Data: data}
	}
	return chat.Part{Type: chat.Image, URL: url}
}

// ImageURL is the inverse of Image.
func ImageURL(p chat.Part) string {
	if p.URL != "" {
		return p.URL
	}
	return "data:" + p.MediaType + ";base64," + p.Data
}
