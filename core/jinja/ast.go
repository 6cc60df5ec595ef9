package jinja

// node is a statement, or text.
type node interface{}

type (
	nodeData  struct{ text Text }
	nodePrint struct {
		line int
		expr expr
	}
	nodeIf struct {
		cond expr
		then []node
		els  []node
	}
	nodeFor struct {
		line    int
		targets []string
		list    expr
		cond    expr
		body    []node
		els     []node
		nested  bool // recursive
	}
	// nodeSet assigns to names, or to an attribute of a namespace.
	nodeSet struct {
		line    int
		targets []target
		value   expr
		body    []node // of a block
		filters []filterUse
	}
	nodeMacro struct {
		name   string
		params []param
		body   []node
	}
	nodeCall struct {
		line   int
		params []param
		call   expr
		body   []node
	}
	nodeFilter struct {
		line    int
		filters []filterUse
		body    []node
	}
	nodeWith struct {
		names  []string
		values []expr
		body   []node
	}
	nodeBreak    struct{}
	nodeContinue struct{}
	// nodeGroup is a block that changes nothing.
	nodeGroup struct{ body []node }
)

type target struct{ name, attr string }

type param struct {
	name string
	def  expr
}

// expr is an expression.
type expr interface {
	eval(e *exec, s *scope) (Value, error)
}

type (
	exprConst struct{ value Value }
	exprName  struct {
		name string
	}
	exprList struct {
		items []expr
		tuple bool
	}
	exprDict struct{ keys, values []expr }
	exprAttr struct {
		of   expr
		name string
		line int
	}
	exprItem struct {
		of, key expr
		line    int
	}
	exprSlice struct {
		of       expr
		from, to expr
		step     expr
		line     int
	}
	exprCall struct {
		of   expr
		args args
		line int
	}
	exprFilter struct {
		of  expr
		use filterUse
	}
	exprTest struct {
		of   expr
		name string
		args args
		not  bool
		line int
	}
	exprNot struct{ of expr }
	exprNeg struct {
		of   expr
		plus bool
		line int
	}
	exprBinary struct {
		op   string
		a, b expr
		line int
	}
	exprCompare struct {
		first expr
		ops   []string
		rest  []expr
		line  int
	}
	exprLogic struct {
		or   bool
		a, b expr
	}
	exprIf struct{ then, cond, els expr }
)

type args struct {
	list  []expr
	names []string
	named []expr
}

type filterUse struct {
	name string
	args args
	line int
}
