import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'vite'
import { repository } from './repository.ts'

/** A member of a class of `src`, as its source declares it. */
export interface ClassMember {
  readonly owner: string
  readonly key: string
  /** Left out of the declarations, or for subclasses alone. */
  readonly isHidden: boolean
  /** A field, or an accessor, that may be set. */
  readonly isSettable: boolean
}

interface Syntax {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly accessibility?: string | null
  readonly readonly?: boolean
  readonly kind?: string
  readonly id?: { readonly name: string } | null
  readonly key?: { readonly type?: string; readonly name?: string }
  readonly body?: unknown
}

let found: ClassMember[] | undefined

/** Members of all classes under `src`, private ones left out. */
export function classMembers(): readonly ClassMember[] {
  found ??= read()
  return found
}

/** `Class.method` of all that the declarations leave out, or that subclasses alone may call. */
export const hiddenMethods = (): Set<string> =>
  new Set(classMembers().flatMap(({ owner, key, isHidden }) => (isHidden ? `${owner}.${key}` : [])))

function read(): ClassMember[] {
  const members: ClassMember[] = []
  const folder = join(repository, 'src')
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue
    const text = readFileSync(join(folder, file), 'utf8')
    if (!/\bclass /.test(text)) continue
    const walk = (node: unknown): void => {
      if (Array.isArray(node)) for (const one of node) walk(one)
      if (typeof node !== 'object' || node === null || !('type' in node)) return
      const { type, id, body } = node as Syntax
      if (type === 'ClassDeclaration' && id) members.push(...membersOf(id.name, body, text))
      if ('declaration' in node) walk(node.declaration)
    }
    walk(parseSync(file, text).program.body)
  }
  return members
}

function membersOf(owner: string, classBody: unknown, text: string): ClassMember[] {
  const { start, body } = classBody as { start: number; body: Syntax[] }
  return body.flatMap((member, at) => {
    const { type, key, accessibility, kind } = member
    if (!key?.name || key.type === 'PrivateIdentifier') return []
    const before = text.slice(body[at - 1]?.end ?? start, member.start)
    const isField = type === 'PropertyDefinition' && !member.readonly
    return {
      owner,
      key: key.name,
      isHidden: (accessibility ?? 'public') !== 'public' || before.includes('@internal'),
      isSettable: isField || kind === 'set',
    }
  })
}
