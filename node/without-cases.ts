import type { Plugin } from 'vite'

/** As far as this file looks at a syntax tree. */
interface SyntaxNode {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const isNode = (value: unknown): value is SyntaxNode =>
  typeof value === 'object' && value !== null && 'type' in value

function* nodesOf(value: unknown): Generator<SyntaxNode> {
  if (Array.isArray(value)) for (const one of value) yield* nodesOf(one)
  else if (isNode(value)) {
    yield value
    for (const part of Object.values(value)) yield* nodesOf(part)
  }
}

const nameOf = (node: unknown): unknown => (isNode(node) ? node.name : undefined)

/**
 * Returns the code of an op's file without the cases that its checks draw: `cases: []`.
 *
 * What made them is then called by nobody, and a bundler leaves it out, as it does ops that are not used: their making is marked as pure.
 */
export function withoutCasesIn(code: string, program: unknown): string {
  const marks: { at: number; end: number; text: string }[] = []
  for (const node of nodesOf(program)) {
    if (node.type !== 'CallExpression' || nameOf(node.callee) !== 'defineOp') continue
    marks.push({ at: node.start, end: node.start, text: '/* @__PURE__ */ ' })
    const [op] = node.arguments as SyntaxNode[]
    for (const property of (op.properties ?? []) as SyntaxNode[]) {
      const { key, value } = property as unknown as Record<'key' | 'value', SyntaxNode>
      if (nameOf(key) === 'cases')
        marks.push({ at: property.start, end: value.end, text: 'cases: []' })
    }
  }
  marks.sort((a, b) => b.at - a.at)
  return marks.reduce(
    (text, { at, end, text: own }) => text.slice(0, at) + own + text.slice(end),
    code,
  )
}

/** A Vite plugin for workers that train: they hold no op against its reference, so they carry no cases. */
export const withoutCases = (): Plugin => ({
  name: 'tabring:without-cases',
  enforce: 'post',
  transform: {
    filter: { id: /\/src\/kernels\/[^?]*\.ts$/ },
    handler(code) {
      return code.includes('defineOp') ? withoutCasesIn(code, this.parse(code)) : undefined
    },
  },
})
