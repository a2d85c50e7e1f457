import type { Expression, FunctionDeclaration, Statement } from '../wgsl/syntax.ts'

/** Statements without those that never run: branches whose condition is a constant of the module, and what stands behind a jump. */
export function simplify(
  statements: readonly Statement[],
  truth: (condition: Expression) => boolean | undefined,
): Statement[] {
  const kept: Statement[] = []
  for (const statement of statements) {
    if (statement.kind === 'if') {
      const is = truth(statement.condition)
      const then = is === false ? [] : simplify(statement.then, truth)
      const otherwise = is === true ? [] : simplify(statement.otherwise, truth)
      if (is === undefined) kept.push({ ...statement, then, otherwise })
      else {
        const body = is ? then : otherwise
        if (body.length > 0) kept.push({ kind: 'block', body, line: statement.line })
        if (endsWithJump(body)) return kept
      }
    } else if (statement.kind === 'for') {
      kept.push({ ...statement, body: simplify(statement.body, truth) })
    } else if (statement.kind === 'block') {
      const body = simplify(statement.body, truth)
      kept.push({ ...statement, body })
      if (endsWithJump(body)) return kept
    } else {
      kept.push(statement)
      if (endsWithJump([statement])) return kept
    }
  }
  return kept
}

const jumps = ['return', 'break', 'continue']

function endsWithJump(statements: readonly Statement[]): boolean {
  const last = statements.at(-1)
  return (
    last !== undefined &&
    (jumps.includes(last.kind) || (last.kind === 'block' && endsWithJump(last.body)))
  )
}

/** Calls `visit` with all expressions of a statement and of those in it. */
export function forEachExpression(statement: Statement, visit: (one: Expression) => void): void {
  const each = (expression: Expression | undefined): void => {
    if (!expression) return
    visit(expression)
    if (expression.kind === 'unary' || expression.kind === 'member') each(expression.of)
    else if (expression.kind === 'binary') {
      each(expression.left)
      each(expression.right)
    } else if (expression.kind === 'call') expression.arguments.forEach(each)
    else if (expression.kind === 'index') {
      each(expression.of)
      each(expression.index)
    }
  }
  const inside = (statements: readonly Statement[]) => {
    for (const one of statements) forEachExpression(one, visit)
  }
  switch (statement.kind) {
    case 'if':
      each(statement.condition)
      inside(statement.then)
      inside(statement.otherwise)
      return
    case 'for':
      if (statement.first) inside([statement.first])
      each(statement.condition)
      if (statement.next) inside([statement.next])
      inside(statement.body)
      return
    case 'block':
      inside(statement.body)
      return
    case 'assign':
      each(statement.target)
      each(statement.value)
      return
    case 'call':
      each(statement.call)
      return
    case 'break':
    case 'continue':
      return
    default:
      each(statement.value)
  }
}

const barriers = ['workgroupBarrier', 'storageBarrier']

/** The functions in which all invocations of a workgroup wait for each other. */
export function functionsWithBarriers(
  functions: ReadonlyMap<string, FunctionDeclaration>,
): ReadonlySet<string> {
  const found = new Set<string>(barriers)
  const has = ({ body }: FunctionDeclaration): boolean => body.some((one) => hasBarrier(one, found))
  // A function may stand before those that it calls.
  for (let size = 0; size !== found.size; ) {
    size = found.size
    for (const [name, one] of functions) if (has(one)) found.add(name)
  }
  return found
}

export function hasBarrier(statement: Statement, withBarriers: ReadonlySet<string>): boolean {
  let has = false
  forEachExpression(statement, (one) => {
    has ||= one.kind === 'call' && withBarriers.has(one.type.name)
  })
  return has
}
