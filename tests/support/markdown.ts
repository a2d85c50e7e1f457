import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from './repository.ts'

// Reads Markdown as GitHub shows it: code blocks, headings with their anchors, links and sentences.

/** Whether `path`, relative to the root, is a file or folder. */
export const exists = (path: string): boolean => existsSync(join(repository, path))

/** Code of a page. Indented code has no language. */
export interface CodeBlock {
  readonly page: string
  /** Of the first line of code, from 1. */
  readonly line: number
  /** Null for indented code. */
  readonly language: string | null
  readonly text: string
  /** Of the file that it is, where a line before it says so: `name.ts`: */
  readonly file: string | null
}

export interface MarkdownPage {
  /** Relative to the root, with slashes. */
  readonly path: string
  readonly text: string
  readonly blocks: readonly CodeBlock[]
  /** The text without code blocks; their lines are empty, so line numbers hold. */
  readonly prose: readonly string[]
  /** Whether a script writes it. */
  readonly isGenerated: boolean
}

/** Returns the pages of these paths, in order; a folder stands for all `.md` files below it. Those that do not exist are left out. */
export const readPages = (...paths: readonly string[]): MarkdownPage[] =>
  paths
    .filter(exists)
    .flatMap((path) => (path.endsWith('.md') ? [path] : filesBelow(path)))
    .map((path) => parsePage(path, readFileSync(join(repository, path), 'utf8')))

const filesBelow = (folder: string): string[] =>
  readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
    .filter((name) => name.endsWith('.md'))
    .sort()

/** What users read. */
export const userPages = (): MarkdownPage[] => readPages('README.md', 'CONTRIBUTING.md', 'docs')

export function parsePage(path: string, text: string): MarkdownPage {
  const blocks: CodeBlock[] = []
  const prose: string[] = []
  let fence: { indent: string; language: string; line: number; code: string[] } | null = null
  let indented: { line: number; code: string[] } | null = null
  const endIndented = () => {
    if (!indented) return
    const code = indented.code.join('\n').trimEnd()
    blocks.push({ page: path, line: indented.line, language: null, text: `${code}\n`, file: null })
    indented = null
  }
  const lines = text.split('\n')
  /** Whether a list item is open, whose further paragraphs are indented. */
  let isInList = false
  lines.forEach((line, index) => {
    if (fence) {
      prose.push('')
      if (line.trim() === '```') {
        const { language, line, code } = fence
        const [, file = null] = /^`([\w.-]+)`:$/.exec(lines[line - 4] ?? '') ?? []
        blocks.push({ page: path, line, language, text: `${code.join('\n')}\n`, file })
        fence = null
      } else {
        fence.code.push(line.startsWith(fence.indent) ? line.slice(fence.indent.length) : line)
      }
      return
    }
    const [, indent, language] = /^(\s*)```(.*)$/.exec(line) ?? []
    if (language !== undefined) {
      endIndented()
      prose.push('')
      fence = { indent, language: language.trim(), line: index + 2, code: [] }
      return
    }
    if (/^\s*([-*]|\d+\.) /.test(line)) isInList = true
    else if (/^\S/.test(line)) isInList = false
    const isCode = /^ {4}/.test(line) && !isInList
    const isAfterBlank = index === 0 || lines[index - 1].trim() === ''
    if (isCode && (indented || isAfterBlank)) {
      indented ??= { line: index + 1, code: [] }
      indented.code.push(line.slice(4))
      prose.push('')
      return
    }
    if (indented && line.trim() === '') indented.code.push('')
    else endIndented()
    prose.push(line)
  })
  endIndented()
  if (fence) throw new Error(`${path}: a code block has no end`)
  return { path, text, blocks, prose, isGenerated: text.startsWith('<!-- Made by') }
}

/** Returns the anchors of a page's headings, as GitHub makes them. */
export function anchorsOf({ prose }: MarkdownPage): Set<string> {
  const anchors = new Set<string>()
  const count = new Map<string, number>()
  for (const line of prose) {
    const [, title] = /^#{1,6} (.+)$/.exec(line) ?? []
    if (title === undefined) continue
    const plain = title.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '')
    const slug = plain
      .trim()
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-')
    const before = count.get(slug) ?? 0
    count.set(slug, before + 1)
    anchors.add(before === 0 ? slug : `${slug}-${before}`)
  }
  return anchors
}

/** Returns where the page's links and pictures lead, code spans left out. */
export function linksOf({ prose }: MarkdownPage): string[] {
  const text = prose.map((line) => line.replaceAll(/`[^`]*`/g, '')).join('\n')
  const patterns = [
    /\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)/g,
    /(?:src|href)="([^"]+)"/g,
    /<(https?:[^>\s]+)>/g,
  ]
  return patterns.flatMap((pattern) => [...text.matchAll(pattern)].map(([, target]) => target))
}

/** Returns the page's sentences, without tables, headings and pictures; a code span counts as one word. */
export function sentencesOf({ prose }: MarkdownPage): string[] {
  const paragraphs: string[] = []
  let current = ''
  const end = () => {
    if (current.trim()) paragraphs.push(current.trim())
    current = ''
  }
  for (const line of prose) {
    if (/^\s*(\||#{1,6} |<|!\[)/.test(line) || line.trim() === '') end()
    else if (/^\s*([-*]|\d+\.) /.test(line)) {
      end()
      current = line.replace(/^\s*([-*]|\d+\.) /, '')
    } else current += ` ${line}`
  }
  end()
  return paragraphs.flatMap((paragraph) =>
    paragraph
      .replaceAll(/``?[^`]+``?/g, 'code')
      .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replaceAll(/[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}/g, '')
      .split(/(?<=[.!?][)"”]?)\s+/),
  )
}

export const wordsIn = (sentence: string): number =>
  sentence.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length
