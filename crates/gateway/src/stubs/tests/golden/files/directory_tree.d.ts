export type Filter = {
  op: "not";
  arg: Filter;
} | {
  op: "name";
  glob: string;
};

export type Node = {
  name: string;
  size?: number | null;
  children?: Array<Node>;
  meta?: Record<string, string>;
};

/**
 * @example
 * await files.directory_tree({ from: "..." })
 */
export declare function directory_tree(args: {
  /** (default null) */
  from: string | null;
  "x-filter"?: Filter;
  at?: [number, number];
}): Promise<Array<Node>>;
