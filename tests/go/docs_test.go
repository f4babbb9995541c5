package volary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestTheExamplesOfThePageAreTheFunctionsThatRun compares docs/clients/go.md with examples_test.go.
func TestTheExamplesOfThePageAreTheFunctionsThatRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients/go.md")
	check(t, err)
	source, err := os.ReadFile("examples_test.go")
	check(t, err)
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "examples_test.go", source, 0)
	check(t, err)
	var functions, imports []string
	for _, declared := range parsed.Decls {
		if function, is := declared.(*ast.FuncDecl); is {
			functions = append(functions, string(source[files.Position(function.Pos()).Offset:files.Position(function.End()).Offset]))
		}
	}
	for _, imported := range parsed.Imports {
		imports = append(imports, imported.Path.Value)
	}
	var shown strings.Builder
	for _, block := range goBlock.FindAllStringSubmatch(string(page), -1) {
		example := strings.TrimSpace(block[1])
		if !strings.HasPrefix(example, "import (") {
			shown.WriteString(example)
			if !strings.Contains(string(source), example) {
				t.Errorf("examples_test.go does not have this example:\n%s", example)
			}
			continue
		}
		for line := range strings.Lines(strings.Trim(example, "import ()\n")) {
			if line = strings.TrimSpace(line); !slices.Contains(imports, line) {
				t.Errorf("no example needs the import %s", line)
			}
		}
	}
	for _, function := range functions {
		if !strings.Contains(shown.String(), function) {
			t.Errorf("the page does not have this example:\n%s", function)
		}
	}
}

func TestTheExamplesOfThePage(t *testing.T) {
	uri := "grpc://" + unsecured.Address
	connection, err := connect(background(t), uri)
	check(t, err)
	defer connection.Close()
	written, err := upload(background(t), connection, parrots())
	check(t, err)
	equal(t, written, int64(2))
	written, err = insert(background(t), connection, parrots())
	check(t, err)
	equal(t, written, int64(2))
	rows := printed(t, func() error { return show(background(t), connection, "SELECT * FROM parrots ORDER BY k") })
	equal(t, strings.Contains(rows, `["kea" "kea" (null) (null)]`), true)
	equal(t, query(t, connection, "SELECT * FROM parrots ORDER BY k"), [][]string{{"1", "kea"}, {"1", "kea"}, {"2", "(null)"}, {"2", "(null)"}})
	equal(t, query(t, connection, "SELECT shard_key FROM system.tables WHERE name = 'parrots'"), [][]string{{"k"}})
	_, err = upload(background(t), connection, parrots())
	equal(t, sqlstateOf(err), "42P07")
	run(t, connection, "DROP TABLE parrots")
	equal(t, printed(t, func() error { return useDatabaseSQL(background(t), uri) }), "Bruce 2026-11-26 01:09:22 +0000 UTC 0.95\n")
}

func TestTheExamplesOfThePageOverTLS(t *testing.T) {
	c := theSecured(t)
	authority := c.Path("certificates/authority.pem")
	connection, err := connectOverTLS(background(t), "grpc+tls://"+c.Address, "admin", adminPassword, authority)
	check(t, err)
	defer connection.Close()
	equal(t, query(t, connection, who), [][]string{{"admin"}})
	db, err := openOverTLS(c.Address, query(t, connection, "CREATE TOKEN of_the_page VALID FOR '1 day'")[0][0], authority)
	check(t, err)
	defer db.Close()
	equal(t, values(t, db, who), [][]any{{"admin"}})
}

// printed returns what an example prints.
func printed(t *testing.T, example func() error) string {
	t.Helper()
	standardOutput := os.Stdout
	defer func() { os.Stdout = standardOutput }()
	caught, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	check(t, err)
	defer caught.Close()
	os.Stdout = caught
	check(t, example())
	text, err := os.ReadFile(caught.Name())
	check(t, err)
	return string(text)
}
