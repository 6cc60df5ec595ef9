package format

// Spec declares a format as data: how calls are wrapped and written, how text
// values are typed and where they end, how reasoning is marked, which ids
// calls have, where generation stops, and how a conversation is rendered. It
// is read from a YAML file by ParseSpec.
type Spec struct {
	Name string `yaml:"name"`
	// Extends names a format that ships, whose declarations hold where this
	// one says nothing; null takes one of them away. Name, summary, aliases and
	// detect are each format's own.
	Extends string `yaml:"extends"`
	// Vars are put in for ${name} in all texts of the file and of what it
	// extends.
	Vars    map[string]string `yaml:"vars"`
	Summary string            `yaml:"summary"`
	Aliases []string          `yaml:"aliases"`
	// Detect are substrings of a model's chat template that together name this
	// format. With ! in front it is one that must not be there.
	Detect    []string       `yaml:"detect"`
	Reasoning *ReasoningSpec `yaml:"reasoning"`
	// Frames are markers around an answer that are no part of it.
	Frames []FrameSpec `yaml:"frames"`
	Calls  *CallsSpec  `yaml:"calls"`
	// IDs is the scheme of call ids: "random" (call_ and 24 hex digits),
	// "alnum9" (nine letters and digits), "header" (what the model wrote) or
	// "sequence" (the same, and a number that counts the conversation's calls).
	IDs string `yaml:"ids"`
	// Stops end generation. They are dropped at the very end of the text.
	Stops []string `yaml:"stops"`
	// Tokens are further strings that are single tokens, besides the stops and
	// the markers of reasoning.
	Tokens []string    `yaml:"tokens"`
	Render *RenderSpec `yaml:"render"`
}

// ReasoningSpec says how reasoning is marked.
type ReasoningSpec struct {
	Open  string `yaml:"open"`
	Close string `yaml:"close"`
	// EndedByCall lets a call end reasoning that was not closed. Without it,
	// calls inside reasoning are text.
	EndedByCall bool `yaml:"ended_by_call"`
	// Anywhere lets reasoning open after other text as well.
	Anywhere bool `yaml:"anywhere"`
	// BareClose says that a reply without reasoning may begin with Close.
	BareClose bool `yaml:"bare_close"`
}

// FrameSpec is markers around content. They are dropped where content begins
// with the one that opens it; with Anywhere, wherever they stand.
type FrameSpec struct {
	Open     string `yaml:"open"`
	Close    string `yaml:"close"`
	Anywhere bool   `yaml:"anywhere"`
}

// CallsSpec is the envelope of calls and the grammars of what is in it. With
// several grammars, whichever matches is taken.
type CallsSpec struct {
	// Open and Close are the markers around one or more calls, with their
	// variants. Close may be empty: calls then end with the text.
	Open  []string `yaml:"open"`
	Close []string `yaml:"close"`
	// Bare is where a call may come without its wrapper: "" nowhere,
	// "line" at the beginning of a line, "start" as the first text only,
	// "anywhere".
	Bare string `yaml:"bare"`
	// Special says that the markers are tokens that text never spells, so that
	// one that closes nothing is dropped wherever it stands.
	Special bool `yaml:"special"`
	// UnknownTools is what becomes of a call of a tool that wasn't offered: ""
	// or "pass", it is a call, with a warning, and "text", its markup is.
	UnknownTools string `yaml:"unknown_tools"`
	// Noise are strings that are skipped between markers.
	Noise  []string    `yaml:"noise"`
	Tagged *TaggedSpec `yaml:"tagged"`
	JSON   *JSONSpec   `yaml:"json"`
	Header *HeaderSpec `yaml:"header"`
	// Literal takes calls as Python writes them: [name(key="value", n=1),
	// other()]. In a wrapper the brackets may be missing; without one, the list
	// has to be the whole reply.
	Literal bool `yaml:"literal"`
	// Strings is a marker around strings in JSON, whose keys are then bare.
	Strings string `yaml:"strings"`
	// Nested is a call whose parameters are elements named after them, with
	// objects and lists as elements in elements.
	Nested *NestedSpec `yaml:"nested"`
	// Messages makes the whole reply a sequence of messages, and calls some of
	// them.
	Messages *MessagesSpec `yaml:"messages"`
}

// MessagesSpec is a reply of messages, each with a header that says where it
// goes: start ROLE [to=RECIPIENT] channel NAME [to=RECIPIENT] [constrain TYPE]
// message BODY end.
type MessagesSpec struct {
	Start     string `yaml:"start"`
	Channel   string `yaml:"channel"`
	Constrain string `yaml:"constrain"`
	Message   string `yaml:"message"`
	// End are the markers that end a body.
	End []string `yaml:"end"`
	// Reasoning are the channels of reasoning, Content those of content.
	Reasoning []string `yaml:"reasoning"`
	Content   []string `yaml:"content"`
	// Functions precedes the name of a tool in a recipient.
	Functions string `yaml:"functions"`
	// ReasoningTo and ContentTo are recipients of reasoning and content, in
	// formats without channels. What goes elsewhere holds calls in their wrapper.
	ReasoningTo []string `yaml:"reasoning_to"`
	ContentTo   []string `yaml:"content_to"`
}

// NestedSpec is a call of nested elements. Each tag has Mark in front, so that
// tags without it are text.
type NestedSpec struct {
	Mark string `yaml:"mark"`
	// Open, with {name} in it, and Close are the tags of a call.
	Open  string `yaml:"open"`
	Close string `yaml:"close"`
	// Item is the name of the elements of a list.
	Item string `yaml:"item"`
}

// TaggedSpec is a call with one tagged element for each parameter, whose
// values are text. A tag is given with {name} in it; a space stands for any
// whitespace or none.
type TaggedSpec struct {
	Open       string `yaml:"open"`
	Close      string `yaml:"close"`
	Param      string `yaml:"param"`
	ParamClose string `yaml:"param_close"`
	// Trim is "newline", one newline at each edge of a value is markup, "pair",
	// the one at its end only where there is one at its start, or "none".
	Trim string `yaml:"trim"`
	// End is where a value ends: "lookahead", at a closing tag that structure
	// follows, or "first", at the first closing tag.
	End string `yaml:"end"`
	// StringAttr is the attribute of a parameter's tag that says "true" for
	// text and "false" for JSON. Without one, the tool's schema decides.
	StringAttr string `yaml:"string_attr"`
	// TypeAttr is the attribute that names the type of a value: text where that
	// is one of TextTypes, else JSON.
	TypeAttr  string   `yaml:"type_attr"`
	TextTypes []string `yaml:"text_types"`
	// IDAttr is the attribute of a call's tag that holds its id.
	IDAttr string `yaml:"id_attr"`
	// Mark is a piece of the tags that models sometimes write in another way,
	// and Variants are those ways.
	Mark     string   `yaml:"mark"`
	Variants []string `yaml:"variants"`
	// Entities says that & and " are escaped in names.
	Entities bool `yaml:"entities"`
}

// JSONSpec is a call that is a JSON object.
type JSONSpec struct {
	// Name and Arguments are the keys that hold them, the first being the one
	// that is rendered.
	Name      []string `yaml:"name"`
	Arguments []string `yaml:"arguments"`
	// SingleKey says that the object is {name: arguments}.
	SingleKey bool `yaml:"single_key"`
	// NeedArguments makes an object without arguments no call.
	NeedArguments bool `yaml:"need_arguments"`
	// ID is the key of the call's id.
	ID string `yaml:"id"`
}

// HeaderSpec is a call with a header of its own and a JSON body.
type HeaderSpec struct {
	// Open precedes the header. It may be empty where the wrapper's marker
	// does.
	Open string `yaml:"open"`
	// Sep are markers that end the header, "{" among them where it may.
	Sep []string `yaml:"sep"`
	// Type is a word and marker that may precede the name, such as
	// "function<sep>".
	Type string `yaml:"type"`
	// ID is a marker between the name and an id.
	ID string `yaml:"id"`
	// Fence allows the body in a Markdown fence.
	Fence bool   `yaml:"fence"`
	Close string `yaml:"close"`
	// NamePrefix is dropped from the header, and NameIndex is the separator of
	// a number at its end, to get the name.
	NamePrefix string `yaml:"name_prefix"`
	NameIndex  string `yaml:"name_index"`
}

// RenderSpec holds the templates of Go's text/template that write a prompt.
// What a template says itself is markup; what its actions print is data.
type RenderSpec struct {
	// Thinking is what a conversation that doesn't say gets: "on", "off", or
	// "" for a model that decides itself.
	Thinking string `yaml:"thinking"`
	// Keep says which reasoning of the history is rendered: "all", "none",
	// "last_query", that of the turns after the last message of a user, or
	// "with_tools", the same without tools and all with some.
	Keep string `yaml:"keep"`
	// MovesWithQuery says that something, such as the tools, stands at the last
	// message of a user, so that a new one changes what came before.
	MovesWithQuery bool `yaml:"moves_with_query"`
	// Head is written first: the leading system message and the tools.
	Head string `yaml:"head"`
	// System, User, Assistant and Tool write a message. Assistant ends before
	// Stop.
	System    string `yaml:"system"`
	User      string `yaml:"user"`
	Assistant string `yaml:"assistant"`
	Tool      string `yaml:"tool"`
	// Stop and After close an assistant's turn. Stop is what the model samples
	// as its last token; without it, the marker that opens the next turn is.
	Stop  string `yaml:"stop"`
	After string `yaml:"after"`
	// Generate opens the turn that the model is to write.
	Generate string `yaml:"generate"`
	// OpenReasoning is the end of a prompt that has opened reasoning.
	OpenReasoning string `yaml:"open_reasoning"`
	// Define holds named templates for use by the others.
	Define map[string]string `yaml:"define"`
}
