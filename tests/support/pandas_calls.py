"""Uses of pandas in which plain data takes part: masks, codes, positions, columns.

`e`, `T`, `codes`, `mask` and `X` are arrays that are not differentiated; `df` and `num` are frames.

For ``tests/packages``.
"""

CALLS = """
df[e > 0]["a"]
df.loc[mask, "a"]
df.loc[T > 3, "a"]
df.iloc[np.argmax(T)]["a"]
df.iloc[T.argmax()]["a"]
df.iloc[np.argsort(T)]["a"] * np.arange(8)
df.iloc[T.argsort()[:3]]["a"]
df.groupby(codes)["a"].mean()
df.groupby(e)["a"].mean()
df.groupby(codes % 2)["a"].sum()
pd.Series(T).rolling(2).mean()
pd.Series(T, index=codes).groupby(level=0).sum()
pd.DataFrame({"T": T, "e": e}).groupby("e")["T"].mean()
pd.DataFrame(X, columns=["u","v"])["u"]
pd.DataFrame(X).corr().to_numpy()
df.assign(t=T)["t"]
df["a"].isin(T)
df["a"].where(e > 0, 0)
df["a"].mask(mask, T)
pd.cut(T, 3, labels=False)
pd.qcut(T, 2, labels=False)
pd.cut(T, np.array([0,1,5,100.]), labels=False)
pd.factorize(codes)[0]
pd.unique(codes)
pd.Categorical(codes).codes
pd.get_dummies(codes).to_numpy()
pd.crosstab(codes, e > 0).to_numpy()
pd.concat([pd.Series(T), pd.Series(e)], axis=1).to_numpy()
pd.Index(T).size
df.set_index(codes)["a"]
df.set_index(T)["a"]
df.reindex(codes)["a"]
df.take(codes)["a"]
df["a"].repeat(codes)
df["a"].searchsorted(T)
num.dot(np.array([1.,2.]))
num @ np.array([1.,2.])
df["a"].dot(T)
df["a"].corr(pd.Series(T))
num.apply(lambda r: r * 2).to_numpy()
num.mul(T, axis=0).to_numpy()
df["a"] * T
T * df["a"]
df["a"] + e
e - df["a"]
np.add(df["a"], T)
np.where(mask, df["a"], T)
np.dot(X.T, df["a"])
X.T @ num.to_numpy()
X.T.dot(df["a"])
num.to_numpy().dot(X.T)
np.maximum(df["a"], e)
df["a"].clip(e*0, e)
df["a"].combine(pd.Series(e), max)
df["a"].map(lambda v: v * 2)
df["a"].pipe(lambda v: v * T)
df["a"].to_numpy() * T
df.query("a > 0.5")["a"]
df.loc[np.flatnonzero(mask), "a"]
df.loc[np.nonzero(mask)[0], "a"]
df.iloc[int(codes[0])]["a"]
df.iloc[codes[0]]["a"]
df.iloc[codes[:3]]["a"]
df.iloc[codes.tolist()]["a"]
df.iat[codes[0], 0]
df.at[codes[0], "a"]
df.iloc[codes[0]:codes[0]+2]["a"]
df.iloc[:, np.array([0,1])].to_numpy()
df.iloc[np.array([0,1]), 0]
df.drop(index=np.unique(codes))["a"]
pd.Series(e).value_counts()
pd.Series(codes).map({0:1.,1:2.,2:3.})
pd.to_numeric(pd.Series(T))
pd.date_range("2020", periods=codes.size).dayofyear
pd.to_timedelta(codes, unit="D").days
pd.Timestamp("2020").year + codes
pd.MultiIndex.from_arrays([codes, e]).codes[0]
pd.pivot_table(pd.DataFrame({"c": codes, "t": T}), index="c").to_numpy()
pd.merge(pd.DataFrame({"k": codes, "t": T}), pd.DataFrame({"k":[0,1,2],"z":[1.,2,3]}))["z"]
pd.DataFrame({"c": codes, "t": T}).sort_values("t")["c"]
pd.DataFrame({"c": codes, "t": T}).to_numpy()
pd.DataFrame({"c": codes}, index=T).index.to_numpy()
pd.Series(T)[mask]
pd.Series(T)[codes]
pd.Series(T).loc[codes]
pd.Series(T).iloc[codes]
df["a"][mask]
df["a"][codes]
df["a"].loc[mask]
df[~mask]["a"]
df[mask & (e > 0)]["a"]
df[(e > 0) | mask]["a"]
df[(T - T.mean()) > 0]["a"]
df[np.logical_and(mask, T < 9)]["a"]
df[np.isin(codes, [0, 1])]["a"]
df[np.isfinite(T)]["a"]
df.loc[df["a"] > T.min() / 100, "a"]
df["a"] > e
df["a"].ewm(alpha=float(T[0]/100)).mean()
df["a"].quantile(T / 100)
df["a"].quantile(float(e[0])/2)
np.interp(T, np.sort(df["a"]), df["b"])
np.searchsorted(np.sort(df["a"]), T)
np.histogram(df["a"], weights=T)[0]
np.unique(codes, return_counts=True)[1]
np.bincount(codes, weights=T)
np.average(df["a"], weights=T)
np.concatenate([df["a"], T])
np.column_stack([df["a"], T])
np.array(df["a"]) * T
len(df.sample(3, random_state=np.random.RandomState(0)))
(df["a"] * T).sum()
df["a"].sub(T).abs().mean()
df["a"].fillna(T[0])
df["a"].replace(T[0], 0.)
df["a"].shift(int(codes[0]))
df["a"].nlargest(int(codes.max()))
df.copy().__setitem__("z", T) or 1.
df.copy().__setitem__("z", mask) or 1.
df.copy().loc.__setitem__((mask, "a"), T[mask]) or 1.
df.copy().iloc.__setitem__((codes[0], 0), T[0]) or 1.
pd.Series({k: v for k, v in zip(codes, T)})
pd.Series([v for v in T])
pd.Series(list(T))
pd.DataFrame([T, e]).to_numpy()
pd.DataFrame(np.column_stack([T, e])).to_numpy()
pd.DataFrame.from_dict({"T": T}).to_numpy()
pd.DataFrame.from_records(np.column_stack([T, e])).to_numpy()
pd.Series(T).astype("category").cat.codes
pd.Series(np.where(mask, 1, 0)).sum()
pd.Series(T).between(e, T)
pd.isna(T)
pd.notnull(T).sum()
pd.api.types.is_numeric_dtype(T)
pd.api.types.is_list_like(T)
pd.api.types.is_integer(codes[0])
pd.api.types.is_float(T[0])
pd.eval("T + e")
str(T[0]) is not None
df["g"].map(dict(zip("xyz", T))).sum()
df.groupby("g")["a"].transform(lambda v: v * float(T[0]))
df.groupby("g")["a"].agg(np.mean)
df.groupby("g")["a"].agg(np.sum)
df.groupby("g")["a"].apply(lambda v: np.sum(v))
df.groupby("g")[["a","b"]].apply(lambda v: np.dot(v["a"], v["b"]))
df["a"].agg([np.min, np.max])
df["a"].apply(np.sqrt)
df[["a","b"]].apply(np.sum, axis=1)
df[["a","b"]].apply(np.mean, axis=0)
df[["a","b"]].transform(np.exp).to_numpy()
df["a"].rolling(2).apply(np.mean)
df["a"].rolling(2).apply(np.mean, raw=True)
np.exp(df["a"])
np.sqrt(num).to_numpy()
np.mean(df["a"])
np.sum(num)
np.log(df["a"]).sum()
np.linalg.norm(df["a"])
np.linalg.norm(num)
np.cumsum(df["a"])
np.outer(df["a"], T)
np.vstack([df["a"], T])
np.isnan(df["a"])
np.squeeze(df["a"])
np.power(df["a"], 2)
np.clip(df["a"], 0.2, 0.8)
np.diff(df["a"])
np.std(df["a"])
np.median(df["a"])
np.percentile(df["a"], 50)
np.argsort(df["a"])
np.unique(df["g"]).size
np.ones(len(df)) * df["a"]
np.arange(len(df)) * df["a"]
np.zeros(8) + df["a"]
df.values[:, 0].astype(float)
df["a"].values.copy()
np.isscalar(T[0])
df.index.to_numpy()[mask]
df.index[mask]
df.index[np.argmax(T)]
df.columns[np.array([True, False, True])].size
df.columns.get_indexer(np.array(["a", "b"]))
""".strip().splitlines()
