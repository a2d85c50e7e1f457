/** The syntax tree of the WGSL that kernels are written in. */

export interface TypeName {
  readonly name: string
  /** Types and counts in angle brackets. */
  readonly arguments: readonly (TypeName | Expression)[]
}

export type Expression = { readonly line: number } & (
  | {
      readonly kind: 'number'
      readonly value: number
      readonly suffix: 'f' | 'i' | 'u' | 'int' | 'float'
    }
  | { readonly kind: 'bool'; readonly value: boolean }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'unary'; readonly operator: string; readonly of: Expression }
  | {
      readonly kind: 'binary'
      readonly operator: string
      readonly left: Expression
      readonly right: Expression
    }
  | { readonly kind: 'call'; readonly type: TypeName; readonly arguments: readonly Expression[] }
  | { readonly kind: 'index'; readonly of: Expression; readonly index: Expression }
  | { readonly kind: 'member'; readonly of: Expression; readonly name: string }
)

export interface Declaration {
  readonly kind: 'let' | 'const' | 'var'
  readonly name: string
  readonly type?: TypeName
  readonly value?: Expression
  readonly line: number
}

export type Statement =
  | Declaration
  | {
      readonly kind: 'assign'
      readonly target: Expression
      /** Without its `=`; empty for a plain one. */
      readonly operator: string
      readonly value: Expression
      readonly line: number
    }
  | {
      readonly kind: 'if'
      readonly condition: Expression
      readonly then: readonly Statement[]
      readonly otherwise: readonly Statement[]
      readonly line: number
    }
  | {
      readonly kind: 'for'
      readonly first?: Statement
      readonly condition?: Expression
      readonly next?: Statement
      readonly body: readonly Statement[]
      readonly line: number
    }
  | { readonly kind: 'block'; readonly body: readonly Statement[]; readonly line: number }
  | { readonly kind: 'return'; readonly value?: Expression; readonly line: number }
  | { readonly kind: 'break' | 'continue'; readonly line: number }
  | {
      readonly kind: 'call'
      readonly call: Extract<Expression, { kind: 'call' }>
      readonly line: number
    }

export interface Field {
  readonly name: string
  readonly type: TypeName
  /** Of a function's parameter, such as `builtin`. */
  readonly builtin?: string
}

export interface FunctionDeclaration {
  readonly name: string
  readonly parameters: readonly Field[]
  readonly result?: TypeName
  readonly body: readonly Statement[]
  readonly line: number
}

/** A variable of the module. */
export interface ModuleVariable {
  readonly name: string
  readonly type: TypeName
  readonly space: 'storage' | 'workgroup' | 'private'
  readonly isWritable: boolean
  /** Of storage. */
  readonly binding: number
  readonly line: number
}

export interface Shader {
  readonly aliases: ReadonlyMap<string, TypeName>
  readonly structs: ReadonlyMap<string, readonly Field[]>
  readonly constants: readonly Declaration[]
  readonly variables: readonly ModuleVariable[]
  readonly functions: ReadonlyMap<string, FunctionDeclaration>
  readonly workgroupSize: readonly Expression[]
}
