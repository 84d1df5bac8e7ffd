package manifest

import (
	"bytes"
	"errors"
	"unicode/utf8"
)

// Document is one document of a stream.
type Document struct {
	// Text is the document as written, with the line that separates it from the
	// one before. The texts of all documents in order are the stream.
	Text []byte
	// Number is 1 for the first document, comments and empty ones included.
	Number int
	// Line is that of Text's first line in the stream, from 1.
	Line int
}

// IsSeparated reports whether the document has its own "---".
func (d Document) IsSeparated() bool {
	for line := range bytes.Lines(d.Text) {
		if isMarker(bytes.TrimPrefix(line, byteOrderMark), "---") {
			return true
		}
	}
	return false
}

var byteOrderMark = []byte("\ufeff")

// Split cuts a stream at its separators, "---" and "..." at the start of a line.
// YAML allows neither anywhere else. Comments and directives before a document's
// "---" are part of it.
func Split(stream []byte) ([]Document, error) {
	if !utf8.Valid(stream) {
		return nil, errors.New("not UTF-8 text")
	}
	var documents []Document
	start, startLine, line := 0, 1, 1
	cut := func(end int) {
		if end > start {
			documents = append(documents, Document{Text: stream[start:end], Number: len(documents) + 1, Line: startLine})
		}
		start, startLine = end, line
	}
	begun := false // the current document has its "---" or content
	offset := 0
	for text := range bytes.Lines(stream) {
		switch content := bytes.TrimPrefix(text, byteOrderMark); {
		case isMarker(content, "---"):
			if begun {
				cut(offset)
			}
			begun = true
		case isMarker(content, "..."):
			line++
			cut(offset + len(text))
			line--
			begun = false
		case content[0] != '%' && !isBlankOrComment(content):
			begun = true
		}
		offset += len(text)
		line++
	}
	cut(len(stream))
	return documents, nil
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

func isBlankOrComment(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	return len(line) == 0 || line[0] == '#'
}
