/** A dispatch, or one of several that run piece by piece: a piece of each, then the next piece. */
export interface Stage<Pipeline = unknown, Group = unknown> {
  readonly pipeline: Pipeline
  readonly group: Group
  readonly groups: readonly [number, number, number]
  /** Workgroups of one piece, counted along x first. */
  readonly groupsAPiece: number
  /** By binding: bytes from what one run has there to what the next one has. */
  readonly strides: readonly number[]
}

/** What passes of the device `cpu` have besides WebGPU's. */
export interface TogetherPass<Pipeline = unknown, Group = unknown> {
  /** Runs dispatches for several runs, in which no workgroup needs what others of its stage make: each piece for one run after the other. */
  dispatchTogether(stages: readonly Stage<Pipeline, Group>[], runs: number): void
}
