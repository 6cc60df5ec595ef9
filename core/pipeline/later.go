package pipeline

func (l *taskLoader) csv(b []byte) { panic("x") }

func Graph(p *Pipeline) string { return "" }

func Schema(cat Catalog) ([]byte, error) { return nil, nil }
