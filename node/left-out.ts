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

/** What the calls of a function lose: by property of the object that they get, the value that stands for it; empty: no such property. */
interface LeftOut {
  readonly callee: string
  readonly properties: Readonly<Record<string, string>>
}

/** An op's cases, which its checks draw. */
export const ofOps: LeftOut = { callee: 'defineOp', properties: { cases: '[]' } }

/** What of a setting the command line and the docs alone use. */
export const ofSettings: LeftOut = {
  callee: 'setting',
  properties: { flag: '', help: '', onCommand: '', doc: '', docDefault: '' },
}

/** What of a setting the page uses besides, and its workers do not. */
const ofForm: LeftOut = {
  callee: 'setting',
  properties: { ...ofSettings.properties, label: '', hint: '', placeholder: '', unit: '' },
}

/**
 * Returns code without these properties.
 *
 * What made them is then called by nobody, and a bundler leaves it out, as it does calls whose results are not used: they are marked as pure.
 */
export function leaveOut(code: string, program: unknown, { callee, properties }: LeftOut): string {
  const marks: { at: number; end: number; text: string }[] = []
  for (const node of nodesOf(program)) {
    if (node.type !== 'CallExpression' || nameOf(node.callee) !== callee) continue
    marks.push({ at: node.start, end: node.start, text: '/* @__PURE__ */ ' })
    const [own] = node.arguments as SyntaxNode[]
    for (const property of (own.properties ?? []) as SyntaxNode[]) {
      const name = String(nameOf(property.key))
      if (!Object.hasOwn(properties, name)) continue
      const value = properties[name]
      const comma = value === '' ? (/^\s*,/.exec(code.slice(property.end))?.[0].length ?? 0) : 0
      const text = value && `${name}: ${value}`
      marks.push({ at: property.start, end: property.end + comma, text })
    }
  }
  marks.sort((a, b) => b.at - a.at)
  return marks.reduce(
    (text, { at, end, text: own }) => text.slice(0, at) + own + text.slice(end),
    code,
  )
}

const leavingOut = (name: string, id: RegExp, leftOut: LeftOut): Plugin => ({
  name: `tabring:${name}`,
  enforce: 'post',
  transform: {
    filter: { id },
    handler(code) {
      return code.includes(leftOut.callee) ? leaveOut(code, this.parse(code), leftOut) : undefined
    },
  },
})

const settingFiles = /\/src\/(trainer\/settings\/table|ui\/settings\/list)\.ts$/

/** Vite plugins for the page. */
export const forPage = (): Plugin[] => [leavingOut('without-flags', settingFiles, ofSettings)]

/** Vite plugins for workers that train: they hold no op against its reference, and show no setting. */
export const forWorkers = (): Plugin[] => [
  leavingOut('without-cases', /\/src\/kernels\/[^?]*\.ts$/, ofOps),
  leavingOut('without-form', settingFiles, ofForm),
]
