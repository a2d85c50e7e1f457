import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as library from '../../src/index.ts'
import { parse } from './declarations.ts'
import type { CodeBlock } from './markdown.ts'
import { repository } from './repository.ts'

// Makes modules of the `ts` blocks of the documentation: with their page's preamble, and with the library's names that they use.

/** Every name that `tabring` exports, types too. */
const exported = [
  ...parse('index.ts', readFileSync(join(repository, 'src/index.ts'), 'utf8')).exported.keys(),
]
const values = new Set(Object.keys(library))

/** Import statements at the beginning of a line. */
const imports = /^import [^'"]*?['"][^'"]+['"];?\n/gm

const uses = (code: string, name: string): boolean =>
  new RegExp(`(?<![\\w$.]|\\.\\s)${name}(?![\\w$]|:)`).test(code)

/** Whether the code itself binds the name. */
const binds = (code: string, name: string): boolean =>
  new RegExp(`(?:import|const|let|function|class)\\b[^=;()]*\\b${name}\\b`).test(code)

/** Returns the module of a block. A block that is not a whole file may use the names of its page's preamble, and the library's. */
export function moduleOf({ text, file }: CodeBlock, preamble: string): string {
  const own = (text.match(imports) ?? []).join('')
  if (file) return `${text}export {}\n`
  const code = text.replaceAll(imports, '')
  // In a function a block may declare a name of the preamble again.
  const body = `async function block() {\n${code}}\nawait block()\n`
  const taken = [...preamble.matchAll(/^ *(?:const|function) (\w+)/gm)].map(([, name]) => name)
  // A block with its own imports must have all that it needs.
  const isWhole = /from 'tabring'/.test(own)
  const names = exported.filter(
    (name) =>
      !isWhole &&
      !binds(own, name) &&
      !taken.includes(name) &&
      uses(code, name) &&
      !binds(code, name),
  )
  const lines = names.map(
    (name) => `import ${values.has(name) ? '' : 'type '}{ ${name} } from 'tabring'\n`,
  )
  return `${own}${lines.join('')}${preamble}\n${body}export {}\n`
}

/** Returns a module as one that computes on the CPU with the library's sources. */
export const onCpu = (source: string): string => {
  const index = JSON.stringify(join(repository, 'src/index.ts'))
  const code = source.replaceAll(/from 'tabring'/g, `from ${index}`)
  return `import { setDefaultDevice as onCpu } from ${index}\nonCpu('cpu')\n${code}`
}
