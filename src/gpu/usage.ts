/** WebGPU's flags as constants: Node has none of the globals that name them. */
export const bufferUsage = {
  MAP_READ: 0x1,
  MAP_WRITE: 0x2,
  COPY_SRC: 0x4,
  COPY_DST: 0x8,
  STORAGE: 0x80,
  QUERY_RESOLVE: 0x200,
} as const

export const mapMode = { READ: 0x1, WRITE: 0x2 } as const

export const computeStage = 0x4
